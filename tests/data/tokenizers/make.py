# SPDX-License-Identifier: Apache-2.0
"""Trains small tokenizers with the real `tokenizers` package (0.23.3) and records what it makes of tricky strings.

usage: make.py   (writes beside itself: NAME.json, NAME.jsonl, variants.jsonl, smol.gguf, llama2.gguf, llama2-gguf.jsonl)
variants.jsonl: one line a case: "set" replaces members of ../golden/tokenizers/tok-gpt2/tokenizer.json, "rows" are the results.
"""
import glob
import json
import os
import struct

from tokenizers import AddedToken, Regex, Tokenizer, decoders as D, models as M, normalizers as N, pre_tokenizers as P
from tokenizers import processors as PP, trainers as T

here = os.path.dirname(os.path.abspath(__file__))
corpus = []
for f in sorted(glob.glob(here + "/../golden/data/*.jsonl")):
    corpus += open(f, encoding="utf-8").read().split("\n")
mixed = "h\u00e9llo w\u00f6rld na\u00efve caf\u00e9 \u00c5ngstr\u00f6m \ufb01ne \u00bd \u6771\u4eac \u65e5\u672c\u8a9e \uc5b4\uc808 \u043f\u0440\u0438\u0432\u0435\u0442 \U0001f600 don't I'll we've"
corpus += [mixed] * 40

TRICKY = [
    "", " ", "  ", "   ", "\n", "\n\n", "\t", "a", " a", "a ", "  a  b  ", "Hello, world!", "Hello  world\n\n  foo", "a \n b",
    "I'm 12345 years old; we'LL see 3.14", "don't DON'T 'tis", mixed, "\U0001f600\U0001f3fda\tb\r\nc", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "e\u0301 \u0301e \u00e9 a\u0323\u0307 a\u0307\u0323", "\uac00\u11a8 \u1100\u1161\u11a8 \uac01", "\ufb01 \u212a \u2126 \u1e9b\u0323 \u2167 \u00b2\u00bd",
    "\u0130stanbul \u00df \u1e9e \u017f \u03a3\u03c2", "\u4e2d\u6587\u5b57\u7b26\u3001\u65e5\u672c\u8a9e\u30c6\u30b9\u30c8\u3002", "\u0928\u092e\u0938\u094d\u0924\u0947 \u05e2\u05d1\u05e8\u05d9\u05ea \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "\u0661\u0662\u0663 x2y ab12cd", "\u3000\u00a0\u2003x\u0085\u2028y", "\u00ad\ufeff\u180e\u0000\u0004z", "<s>[INST] Hi [/INST]</s>",
    "a<s>b</s>c", "<s> x </s>", "<mask> and <mask>", " <mask>x", "a[X]  b", "[X]\n", "word words sword word.", "H\u00e9llo h\u00e9llo", "<|a|>b <|a|> c",
    "one two onetwo one twos", "<b>\n\n\n\n</b>", "\u2581\u2581\u2581x \u2581y", "<0x41> <0xE9>", "<unk> zq\u0e01\u0e02\u0e03zq", "a_b (foo) ... -- !=",
    "https://x.org/a?b=c&d=%20", "def f(x):\n    return x+1\n", "x" * 70, "ab" * 40 + " end", "aeiou xxyxx", "#tag @me $1,000.00",
]

EXTRA = [AddedToken("<mask>", lstrip=True, special=True, normalized=False), AddedToken("[X]", rstrip=True, normalized=True),
         AddedToken("word", single_word=True, normalized=False), AddedToken("H\u00e9llo", normalized=True),
         AddedToken("<|a|>", normalized=False, lstrip=True, rstrip=True), AddedToken("<|a|>b", normalized=False),
         AddedToken("one two", single_word=True, normalized=True)]
BYTES = [f"<0x{i:02X}>" for i in range(256)]


def row(t, s):
    a, b = t.encode(s), t.encode(s, add_special_tokens=False)
    return {"text": s, "ids": a.ids, "ids_no_special": b.ids, "decoded": t.decode(b.ids, skip_special_tokens=False),
            "decoded_skip_special": t.decode(b.ids), "offsets": b.offsets}


def save(name, t, **change):
    d = json.loads(t.to_str())
    d["model"].update(change)
    d = json.dumps(d, ensure_ascii=False, separators=(",", ":"))
    t = Tokenizer.from_str(d)
    open(f"{here}/{name}.json", "w", encoding="utf-8").write(d)
    with open(f"{here}/{name}.jsonl", "w", encoding="utf-8") as f:
        for s in TRICKY:
            f.write(json.dumps(row(t, s), ensure_ascii=False, separators=(",", ":")) + "\n")


def bos(t):
    t.post_processor = PP.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", t.token_to_id("<s>"))])


def sentencepiece(name, norm, pre, dec, extra=(), fallback=True, fuse=True):
    t = Tokenizer(M.BPE(unk_token="<unk>", fuse_unk=fuse))
    t.normalizer, t.pre_tokenizer = N.Replace(" ", "\u2581"), P.Split("\u2581", "merged_with_next")
    special = ["<unk>", "<s>", "</s>"] + (BYTES if fallback else [])
    t.train_from_iterator(corpus, T.BpeTrainer(vocab_size=len(special) + 260, limit_alphabet=80, special_tokens=special, show_progress=False))
    d = json.loads(t.to_str())
    d["added_tokens"], d["normalizer"], d["pre_tokenizer"] = [], None, None
    t = Tokenizer.from_str(json.dumps(d))
    if norm:
        t.normalizer = norm
    if pre:
        t.pre_tokenizer = pre
    t.decoder = dec
    t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in ("<s>", "</s>", "<unk>")])
    t.add_tokens(list(extra))
    bos(t)
    save(name, t, byte_fallback=fallback)


def llama_decoder():
    return D.Sequence([D.Replace("\u2581", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)])


sentencepiece("llama2", N.Sequence([N.Prepend("\u2581"), N.Replace(" ", "\u2581")]), None, llama_decoder(), EXTRA)
sentencepiece("gemma", N.Replace(" ", "\u2581"), P.Split(" ", "merged_with_previous"), D.Sequence([D.Replace("\u2581", " "), D.ByteFallback(), D.Fuse()]),
              [AddedToken(x, normalized=False) for x in ("\n", "\n\n", "\n\n\n", "<b>", "</b>", "\u2581\u2581", "\u2581\u2581\u2581")])
sentencepiece("metaspace-first", N.Sequence([N.Strip(), N.NFKC()]), P.Metaspace(prepend_scheme="first", split=False), llama_decoder(), EXTRA)
sentencepiece("metaspace-always", None, P.Metaspace(prepend_scheme="always"), D.Metaspace(), EXTRA, fallback=False, fuse=False)

for name, fallback in (("unigram", False), ("unigram-bytes", True)):
    t = Tokenizer(M.Unigram())
    t.pre_tokenizer = P.Metaspace()
    t.normalizer = N.Sequence([N.NFKC(), N.Replace(Regex(" {2,}"), " ")]) if fallback else N.NFKC()
    special = ["<unk>", "<s>", "</s>"] + (BYTES if fallback else [])
    t.train_from_iterator(corpus, T.UnigramTrainer(vocab_size=len(special) + 330, special_tokens=special, unk_token="<unk>", show_progress=False))
    d = json.loads(t.to_str())
    d["added_tokens"] = d["added_tokens"][:3]
    t = Tokenizer.from_str(json.dumps(d))
    t.decoder = D.Sequence([D.ByteFallback(), D.Metaspace()]) if fallback else D.Metaspace()
    t.add_tokens(EXTRA)
    bos(t)
    save(name, t, byte_fallback=fallback)

t = Tokenizer(M.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
t.normalizer, t.pre_tokenizer = N.Sequence([N.NFD(), N.Lowercase(), N.StripAccents()]), P.BertPreTokenizer()
t.train_from_iterator(corpus, T.WordPieceTrainer(vocab_size=300, special_tokens=["[UNK]", "[CLS]", "[SEP]"], limit_alphabet=60, show_progress=False))
t.decoder, t.post_processor = D.WordPiece(), PP.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
save("wordpiece", t)

t = Tokenizer(M.WordLevel(unk_token="[UNK]"))
t.pre_tokenizer = P.Whitespace()
t.train_from_iterator(corpus, T.WordLevelTrainer(vocab_size=100, special_tokens=["[UNK]"], show_progress=False))
save("wordlevel", t)

t = Tokenizer(M.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
t.normalizer = N.Sequence([N.NFC(), N.Replace(Regex(r"\s+"), " "), N.Lowercase()])
t.pre_tokenizer = P.Sequence([P.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True), P.ByteLevel(add_prefix_space=False)])
t.train_from_iterator(corpus, T.BpeTrainer(vocab_size=400, end_of_word_suffix="</w>", special_tokens=["<unk>"], show_progress=False))
t.decoder = D.Sequence([D.ByteLevel(), D.BPEDecoder("</w>")])
t.post_processor = PP.RobertaProcessing(("<unk>", 0), ("<unk>", 0), trim_offsets=True, add_prefix_space=False)
save("clip", t)

t = Tokenizer(M.BPE(unk_token="[UNK]", continuing_subword_prefix="##"))
t.pre_tokenizer = P.WhitespaceSplit()
t.train_from_iterator(corpus, T.BpeTrainer(vocab_size=300, continuing_subword_prefix="##", special_tokens=["[UNK]"], limit_alphabet=60, show_progress=False))
t.decoder = D.WordPiece(cleanup=False)
save("bpe-prefix", t)

base = json.load(open(here + "/../golden/tokenizers/tok-gpt2/tokenizer.json", encoding="utf-8"))
O200K = ("[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
DEEPSEEK = ["\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
plain = P.ByteLevel(add_prefix_space=False, use_regex=False)


def split(*pairs):
    return P.Sequence([P.Split(p if not p.startswith("re:") else Regex(p[3:]), b, invert=inv) for p, b, inv in pairs] + [plain])


cases = [
    ("pre", split((" ", "removed", False))), ("pre", split((" ", "merged_with_previous", False))), ("pre", split((" ", "merged_with_next", False))),
    ("pre", split((" ", "contiguous", False))), ("pre", split(("re:[aeiou]", "merged_with_previous", False))),
    ("pre", split(("re:[aeiou]", "merged_with_next", True))), ("pre", split(("re:\\w+", "removed", True))), ("pre", split(("re:\\d{1,2}+", "isolated", False))),
    ("pre", split(("re:x*", "isolated", False))), ("pre", split(("re:^.|.$", "isolated", False))),
    ("pre", split(("re:\\p{Han}+|\\p{Latin}+|\\h{2}|[[:punct:]]", "contiguous", False))), ("pre", split(("re:" + O200K, "isolated", False))),
    ("pre", split(*[("re:" + p, "isolated", False) for p in DEEPSEEK])),
    ("pre", P.Sequence([P.Punctuation("merged_with_next"), P.CharDelimiterSplit("e"), P.Digits(individual_digits=False), plain])),
    ("pre", P.Sequence([P.FixedLength(5), plain])), ("pre", P.Sequence([P.Digits(), P.ByteLevel(add_prefix_space=True)])),
    ("pre", P.ByteLevel(add_prefix_space=True)), ("pre", P.Sequence([P.ByteLevel(add_prefix_space=False), P.Split("\u0120", "merged_with_next")])),
    ("norm", N.NFD()), ("norm", N.NFKD()), ("norm", N.NFKC()), ("norm", N.Sequence([N.NFD(), N.StripAccents(), N.Strip(left=False)])),
    ("norm", N.Sequence([N.Lowercase(), N.Replace(Regex("o+"), "0"), N.Prepend("> ")])), ("dec", D.CTC(pad_token="a", word_delimiter_token="\u0120")),
    ("post", PP.ByteLevel(trim_offsets=True, add_prefix_space=True)), ("post", PP.ByteLevel(trim_offsets=True, add_prefix_space=False)),
]
with open(here + "/variants.jsonl", "w", encoding="utf-8") as f:
    for kind, part in cases:
        t = Tokenizer.from_str(json.dumps(base))
        key = {"pre": "pre_tokenizer", "norm": "normalizer", "dec": "decoder", "post": "post_processor"}[kind]
        setattr(t, key, part)
        t.add_tokens([AddedToken("H\u00e9llo", normalized=True)])
        d = json.loads(t.to_str())
        rows = [row(t, s) for s in TRICKY[10:28] + ["H\u00e9llo h\u00e9llo", "aeiou xxyxx", "#tag @me $1,000.00"]]
        rows = [{k: r[k] for k in ("text", "ids", "offsets", "decoded")} for r in rows]
        f.write(json.dumps({"set": {key: d[key], "added_tokens": d["added_tokens"]}, "rows": rows}, ensure_ascii=False, separators=(",", ":")) + "\n")


# ---- GGUF files of metadata alone: tok-smol as "gpt2", llama2 as "llama" ----
def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def value(v):
    if isinstance(v, bool):
        return 7, struct.pack("<B", v)
    if isinstance(v, int):
        return 4, struct.pack("<I", v)
    if isinstance(v, str):
        return 8, text(v)
    kind, data = (8, b"".join(map(text, v))) if isinstance(v[0], str) else (5, struct.pack(f"<{len(v)}i", *v)) if isinstance(v[0], int) else \
        (6, struct.pack(f"<{len(v)}f", *v))
    return 9, struct.pack("<IQ", kind, len(v)) + data


def gguf(name, keys):
    out = b"GGUF" + struct.pack("<IQQ", 3, 1, len(keys))
    for k, v in keys.items():
        kind, data = value(v)
        out += text(k) + struct.pack("<I", kind) + data
    out += text("w") + struct.pack("<IQIQ", 1, 8, 0, 0)
    out += bytes(-len(out) % 32) + struct.pack("<8f", *range(8))
    open(f"{here}/{name}", "wb").write(out)


d = json.load(open(here + "/../golden/tokenizers/tok-smol/tokenizer.json", encoding="utf-8"))
special = {a["content"] for a in d["added_tokens"]}
tokens = sorted(d["model"]["vocab"], key=d["model"]["vocab"].get)
gguf("smol.gguf", {"general.architecture": "llama", "llama.context_length": 128, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
                   "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [3 if t in special else 1 for t in tokens],
                   "tokenizer.ggml.merges": [" ".join(m) for m in d["model"]["merges"]], "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
                   "tokenizer.ggml.unknown_token_id": 0, "tokenizer.ggml.padding_token_id": 2, "tokenizer.ggml.add_bos_token": False,
                   "tokenizer.chat_template": "{{ messages[0].content }}"})

# scores as sentencepiece's BPE trainer gives them: minus the rank; merges as transformers derives them from the scores
d = json.load(open(here + "/llama2.json", encoding="utf-8"))
vocab = d["model"]["vocab"]
tokens = sorted(vocab, key=vocab.get)
score = {t: 0.0 for t in tokens}
for i, (a, b) in enumerate(d["model"]["merges"]):
    score[a + b] = -float(i + 1)
merges = []
for t in tokens:
    parts = [(t[:i], t[i:], score[t]) for i in range(1, len(t)) if t[:i] in vocab and t[i:] in vocab]
    merges += sorted(parts, key=lambda x: (score[x[0]], score[x[1]]), reverse=True)
merges = [m[:2] for m in sorted(merges, key=lambda x: x[2], reverse=True)]
kinds = [2 if t == "<unk>" else 3 if t in ("<s>", "</s>") else 6 if t in BYTES else 1 for t in tokens]
gguf("llama2.gguf", {"general.architecture": "llama", "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": [score[t] for t in tokens],
                     "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0})
t = Tokenizer(M.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
t.normalizer, t.decoder = N.Sequence([N.Prepend("\u2581"), N.Replace(" ", "\u2581")]), llama_decoder()
t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in ("<unk>", "<s>", "</s>")])
bos(t)
with open(here + "/llama2-gguf.jsonl", "w", encoding="utf-8") as f:
    for s in TRICKY:
        f.write(json.dumps(row(t, s), ensure_ascii=False, separators=(",", ":")) + "\n")
