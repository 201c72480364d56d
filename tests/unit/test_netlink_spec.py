#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The YNL specification of the kernel module's family and its uapi header say the same: commands and attributes, in order."""

import os
import re
import unittest

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def read(path):
    with open(os.path.join(TOP, path), encoding="ascii") as file:
        return file.read()


def enum(header, name):
    """Names of an enum, without the one at 0 and the __MAX."""
    body = re.search(r"enum %s \{(.*?)\};" % name, header, re.S).group(1)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    names = [entry.split("=")[0].strip() for entry in body.split(",") if entry.strip()]
    return [name for name in names if not name.startswith("__")]


def lower(names, prefix):
    return [name[len(prefix):].lower().replace("_", "-") for name in names]


class Spec(unittest.TestCase):
    def setUp(self):
        self.header = read("kmod/include/uapi/linux/gleam.h")
        self.spec = read("docs/netlink/gleam.yaml")

    def test_attributes(self):
        sets = self.spec[self.spec.index("attribute-sets:"):self.spec.index("operations:")]
        for part in re.split(r"\n  - name: ", sets)[1:]:
            name = part.split("\n")[0]
            found = re.findall(r"- \{name: ([a-z-]+), type: (\w+)", part)
            wanted = lower(enum(self.header, "gleam_attr_" + name), "GLEAM_A_%s_" % name.upper())
            self.assertEqual(wanted, ["unspec"] + [attribute for attribute, _ in found])
            for attribute, kind in found:
                # The header says the type in a comment.
                define = "GLEAM_A_%s_%s," % (name.upper(), attribute.upper().replace("-", "_"))
                comment = re.search(re.escape(define) + r"\s*/\* (\w+)", self.header)
                self.assertEqual(comment.group(1) if comment else "pad", kind, define)

    def test_commands(self):
        operations = self.spec[self.spec.index("operations:"):]
        found = re.findall(r"^    - (?:\{)?name: ([a-z-]+)", operations, re.M)
        found.remove("events")
        self.assertEqual(lower(enum(self.header, "gleam_cmd"), "GLEAM_CMD_"), ["unspec"] + found)

    def test_constants(self):
        self.assertIn("GLEAM_NAME_MAX\t\t63", self.header)
        self.assertIn("GLEAM_DEVICES_MAX\t64", self.header)
        self.assertIn("name: name-max, value: 63", self.spec)
        self.assertIn("name: devices-max, value: 64", self.spec)


if __name__ == "__main__":
    unittest.main()
