#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`schema.py SCHEMA NAME FILE`: whether the JSON of FILE is as #/$defs/NAME says, and no more than
that. The part of JSON Schema that docs/json uses; another word in the schema is an error, so nothing goes unchecked."""
import json
import re
import sys

TYPES = {"object": dict, "array": list, "string": str, "number": (int, float), "integer": int, "boolean": bool, "null": type(None)}
WORDS = {"$ref", "type", "required", "properties", "items", "enum", "pattern", "minimum", "maximum", "description"}


def is_type(value, name):
    if isinstance(value, bool) and name in ("number", "integer"):
        return False
    return isinstance(value, TYPES[name])


def check(schema, value, root, where, wrong, unknown):
    strange = set(schema) - WORDS
    if strange:
        raise SystemExit("%s: the schema has words that nobody checks: %s" % (where, ", ".join(sorted(strange))))
    if "$ref" in schema:
        check(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], value, root, where, wrong, unknown)
        return
    types = schema.get("type")
    if types and not any(is_type(value, name) for name in ([types] if isinstance(types, str) else types)):
        wrong.append("%s: %r is not %s" % (where, value, types))
        return
    if "enum" in schema and value not in schema["enum"]:
        wrong.append("%s: %r is none of %s" % (where, value, schema["enum"]))
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        wrong.append("%s: %r is not like %s" % (where, value, schema["pattern"]))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if value < schema.get("minimum", value) or value > schema.get("maximum", value):
            wrong.append("%s: %r is out of range" % (where, value))
    if isinstance(value, dict):
        for name in schema.get("required", []):
            if name not in value:
                wrong.append("%s: %s is missing" % (where, name))
        for name, part in value.items():
            if name in schema.get("properties", {}):
                check(schema["properties"][name], part, root, "%s.%s" % (where, name), wrong, unknown)
            else:
                unknown.add("%s.%s" % (where, name))
    if isinstance(value, list) and "items" in schema:
        for i, part in enumerate(value):
            check(schema["items"], part, root, "%s[%d]" % (where, i), wrong, unknown)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        root = json.load(file)
    with open(sys.argv[3], encoding="utf-8") as file:
        value = json.load(file)
    wrong, unknown = [], set()
    check(root["$defs"][sys.argv[2]], value, root, sys.argv[2], wrong, unknown)
    wrong += ["not in the schema: " + name for name in sorted({re.sub(r"\[\d+\]", "[]", name) for name in unknown})]
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
