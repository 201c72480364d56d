#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The reader that judges /gleam/metrics refuses what the format forbids."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from openmetrics import Wrong, check  # noqa: E402

GOOD = """# TYPE a_seconds counter
# UNIT a_seconds seconds
# HELP a_seconds Text with \\\\ and \\n.
a_seconds_total{x="1",y="a\\"b\\\\c\\nd"} 1.5
a_seconds_total{x="2"} 0 1700000000.5
# TYPE b info
b_info{version="1"} 1
# TYPE c stateset
c{c="on"} 1
c{c="off"} 0
# EOF
"""


class Format(unittest.TestCase):
    def test_good(self):
        families = check(GOOD)
        self.assertEqual(families["a_seconds"]["samples"][0][1]["y"], 'a"b\\c\nd')
        self.assertEqual(len(families), 3)

    def test_wrong(self):
        for what, old, new in [
            ("no end", "# EOF\n", ""),
            ("no newline at the end", "# EOF\n", "# EOF"),
            ("behind the end", "# EOF\n", "# EOF\na_seconds_total 1\n# EOF\n"),
            ("an empty line", "# TYPE b info\n", "\n# TYPE b info\n"),
            ("no such type", "info\n", "infos\n"),
            ("a comment", "# TYPE b info\n", "# a comment that is free\n# TYPE b info\n"),
            ("unit", "UNIT a_seconds seconds", "UNIT a_seconds bytes"),
            ("no suffix", 'a_seconds_total{x="2"}', 'a_seconds{x="2"}'),
            ("the same sample", 'a_seconds_total{x="2"} 0 1700000000.5', 'a_seconds_total{y="a\\"b\\\\c\\nd",x="1"} 7'),
            ("negative counter", '{x="2"} 0', '{x="2"} -1'),
            ("info of 2", 'b_info{version="1"} 1', 'b_info{version="1"} 2'),
            ("stateset without its label", 'c{c="on"} 1', 'c{d="on"} 1'),
            ("stateset of 2", 'c{c="on"} 1', 'c{c="on"} 2'),
            ("two spaces", '{x="2"} 0', '{x="2"}  0'),
            ("no number", '{x="2"} 0', '{x="2"} zero'),
            ("hexadecimal", '{x="2"} 0', '{x="2"} 0x10'),
            ("comma at the end", '{x="2"}', '{x="2",}'),
            ("no quotes", '{x="2"}', "{x=2}"),
            ("escape", '{x="2"}', '{x="\\t"}'),
            ("a label twice", '{x="2"}', '{x="2",x="2"}'),
            ("metadata behind samples", "c{c=\"off\"} 0\n", "c{c=\"off\"} 0\n# HELP c late\n"),
            ("a family again", "# EOF\n", "# TYPE b info\n# EOF\n"),
            ("interleaved", "# EOF\n", 'a_seconds_total{x="3"} 1\n# EOF\n'),
            ("a clash", "# EOF\n", "# TYPE b_info gauge\nb_info 1\n# EOF\n"),
        ]:
            text = GOOD.replace(old, new)
            self.assertNotEqual(text, GOOD, what)
            with self.assertRaises(Wrong, msg=what):
                check(text)


if __name__ == "__main__":
    unittest.main()
