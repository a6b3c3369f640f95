"""Writes host/text/unicode_runs.h: the classes of all code points by Unicode 16.0, as runs.

The facts are asked of the crate regex-syntax, which tiktoken 0.14 is built with: a pattern of one class, a text of all
code points, and what of it is matched. python3 tests/oracle/unicode.py > host/text/unicode_runs.h
"""
import unicodedata

import tiktoken

CLASSES = {"u": r"\p{Lu}", "l": r"\p{Ll}", "t": r"\p{Lt}", "h": r"\p{Lm}", "o": r"\p{Lo}", "k": r"\p{M}",
           "n": r"\p{N}", "p": r"\p{P}", "y": r"\p{S}", "s": r"\s"}
LAST = 0x110000
HEAD = """/* unicode_runs.h - the class of every code point by Unicode 16.0, from 0 on: how many follow each other, and of which
 * class, as unicode.c names them; 'a': upper and lower case in turns; capitals: newer than Unicode 14. Written by
 * tests/oracle/unicode.py. */
#ifndef MESHLUA_UNICODE_RUNS_H
#define MESHLUA_UNICODE_RUNS_H

/* clang-format off */
static const char unicode_runs[] ="""


def classes():
    text = "".join(chr(c) for c in range(LAST) if not 0xD800 <= c < 0xE000)
    of = ["x"] * LAST
    for letter, pattern in CLASSES.items():
        e = tiktoken.Encoding("one", pat_str=pattern, mergeable_ranks={bytes([b]): b for b in range(256)},
                              special_tokens={})
        for c in e.decode_bytes(e.encode_ordinary(text)).decode():
            assert of[ord(c)] == "x"
            of[ord(c)] = letter
    assert unicodedata.unidata_version == "14.0.0"
    return [a.upper() if a != "x" and unicodedata.category(chr(c)) == "Cn" else a for c, a in enumerate(of)]


def runs(of):
    at = 0
    while at < LAST:
        end = at + 1
        while end < LAST and of[end] == of[at]:
            end += 1
        turns = at
        while turns < LAST and of[turns] == "ul"[(turns - at) % 2]:
            turns += 1
        if of[at] == "u" and turns - at > end - at:
            yield "a", turns - at
            at = turns
        else:
            yield of[at], end - at
            at = end


def main():
    text = "".join((str(n) if n > 1 else "") + letter for letter, n in runs(classes()))
    print(HEAD)
    for at in range(0, len(text), 110):
        print('    "%s"' % text[at:at + 110])
    print("    ;\n/* clang-format on */\n#endif")


main()
