#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures are well-formed and are those of their texts; lines, arrows and words are told apart."""
import glob
import os
import re
import sys
import unittest
import xml.dom.minidom

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(TOP, "tools", "pictures"))
from picture import svg  # noqa: E402


class Pictures(unittest.TestCase):
    def test_committed_ones_are_current(self):
        texts = glob.glob(os.path.join(TOP, "docs", "pictures", "*.txt"))
        self.assertTrue(texts)
        for path in texts:
            with open(path, encoding="utf-8") as text, open(path[:-4] + ".svg", encoding="utf-8") as picture:
                drawn = svg(text)
                self.assertEqual(picture.read(), drawn, "%s: make pictures" % path)
                xml.dom.minidom.parseString(drawn)

    def test_lines_and_words(self):
        drawn = svg(["+--+   a-b, <x>\n", "|  |-->\n", "+--+\n", "view over\n"])
        words = re.findall(r"<text [^>]*>([^<]*)</text>", drawn)
        self.assertEqual(words, ["a-b, &lt;x&gt;", "view over"])
        self.assertEqual(drawn.count("<polygon"), 1)
        self.assertGreaterEqual(drawn.count("<path"), 5)

    def test_nothing(self):
        xml.dom.minidom.parseString(svg([]))
        xml.dom.minidom.parseString(svg(["# a comment\n"]))


if __name__ == "__main__":
    unittest.main()
