#!/usr/bin/env python3
"""tokens.py -- ids of `dpc data tokens` against those of the package tokenizers.

    pip install tokenizers tiktoken ftfy
    DPC=build/dpc tokens.py [BPE_SIMPLE_VOCAB.txt.gz] [QWEN.tiktoken]

Small vocabularies are trained here with tokenizers, in the forms of CLIP and of
Qwen2, and saved in both of their published shapes; awkward texts are encoded by
the package and by dpc.  With OpenAI's vocabulary file (open_clip_torch brings
it), a tokenizer is also built from it as OpenAI's own code does.  Qwen's and
Qwen2's 151,643 ranks (dashscope brings them, dashscope/resources) become the
vocab.json, merges.txt and tokenizer.json that are published of them; their ids
are also those of tiktoken, which reads the ranks themselves.
"""
import base64
import gzip
import html
import json
import os
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models,
                        normalizers, pre_tokenizers, processors, trainers)

DPC = os.path.abspath(os.environ.get("DPC", "build/dpc"))
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CLIP = (r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+")
SOT, EOT = "<|startoftext|>", "<|endoftext|>"

CORPUS = ["a red boot on a white background", "the cat's boots aren't here",
          "caf\u00e9 cr\u00e8me, na\u00efve \u00fcber", "123 456 7890 and 3.14",
          "\u4e00\u53ea\u7ea2\u8272\u7684\u9774\u5b50", "I'll we've they're",
          "\U0001f600\U0001f680 emoji", "  two  spaces   three\n\nlines\t tab"]
TEXTS = CORPUS + [
    "", " ", "   ", "\n", " \n \n  x", "x", "A", "ALL CAPS And Mixed",
    "it's IT'S It'S we'D y'all'd've ''s", "e\u0301 vs \u00e9 \u1e9b\u0323",
    "\u0130stanbul \u03a3\u0391\u03a3 \u00df \u01c5 \u212b",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01 \uc548\ub155 \u3053\u3093\u306b\u3061\u306f",
    "\u0926\u0947\u0935\u0928\u093e\u0917\u0930\u0940 \u0627\u0644\u0639 \u05e9\u05dc\u05d5\u05dd",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1e9\U0001f1ea \u2764\ufe0f",
    "a\u00a0b\u2003c\u3000d\u2028e\u0085f", "tabs\t\tand\r\nlines\r\r\n\n end  ",
    "1234567890 \u0661\u0662\u0663 \u2167 \u00bd x\u00b2", "foo_bar-baz/qux@x.y #tag $9.99 100%",
    "<|endoftext|>", "a<|endoftext|>b <|im_start|>user\nhi<|im_end|>",
    "<|startoftext|> <|ENDOFTEXT|>", "<|im_start", "!!!???...", "\x01\x7f \u00ad\ufeff",
    "a" * 1000, "ab " * 500, " " * 1000, "\u00e9" * 500, "!" * 777 + "\n" * 9,
    "\U0001f680" * 300]
WEB = ["r&amp;d &lt;b&gt; &quot;x&quot; it&#39;s", "&amp;amp;quot;",
       "caf&eacute; &Uuml;&nbsp;&copy 2020 &#8217;s &hellip; &#x1f600;",
       "AT&T & co &; &# &nonesuch; &#150; &#0;",
       "it\u2019s \u201cquoted\u201d \u2014 &rsquo;<b>&rsquo;</b>",
       "\ufb01ne o\ufb03ce \u01c8 \u0149 \uff21\uff11\uff01\u3000\uff76\uffe3"]
LONG = ["boot " * 20000, "b" * 100000, " " * 100000, "\u9774" * 33333,
        "a1!\n" * 25000]


def clip_form(trained, vocab, merges):
    t = Tokenizer(models.BPE(vocab, merges, end_of_word_suffix="</w>",
                             unk_token=EOT, fuse_unk=False))
    t.normalizer = normalizers.Sequence([
        normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "),
        normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(CLIP), behavior="removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.add_special_tokens([AddedToken(SOT, normalized=True),
                          AddedToken(EOT, normalized=True)])
    t.post_processor = processors.RobertaProcessing(
        (EOT, vocab[EOT]), (SOT, vocab[SOT]), trim_offsets=False,
        add_prefix_space=False)
    return t


def clip_small(size):
    """CLIP's vocabulary: 256 bytes, the same as last of a word, merges."""
    t = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(
        [x.replace(" ", "\n") for x in CORPUS for _ in range(20)],
        trainers.BpeTrainer(vocab_size=size, end_of_word_suffix="</w>",
                            show_progress=False))
    merges = [tuple(m) for m in json.loads(t.to_str())["model"]["merges"]]
    letters = byte_letters()
    vocab = letters + [c + "</w>" for c in letters]
    known, kept = set(vocab), []
    for a, b in merges:
        if a in known and b in known and a + b not in known:
            kept.append((a, b))
            known.add(a + b)
            vocab.append(a + b)
    vocab += [SOT, EOT]
    return clip_form(t, {w: i for i, w in enumerate(vocab)}, kept), kept


def qwen_small(size):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.train_from_iterator(
        [x for x in CORPUS for _ in range(20)],
        trainers.BpeTrainer(vocab_size=size, show_progress=False,
                            initial_alphabet=byte_letters()))
    return qwen_form(t)


def byte_letters():
    """GPT-2's alphabet, in the order of OpenAI's vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(len(rest))]


def openai(path):
    """OpenAI's vocabulary in the package; what ftfy mends is not dpc's."""
    merges = gzip.open(path).read().decode().split("\n")
    merges = [tuple(m.split()) for m in merges[1:49152 - 256 - 2 + 1]]
    letters = byte_letters()
    vocab = letters + [c + "</w>" for c in letters]
    vocab += ["".join(m) for m in merges] + [SOT, EOT]
    return clip_form(None, {w: i for i, w in enumerate(vocab)}, merges)


def qwen_form(t):
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(w, normalized=False) for w in
                          (EOT, "<|im_start|>", "<|im_end|>")])
    return t


def parts(ranks, token):
    """The two parts that make a token: merge by rank until two are left."""
    x = [bytes([b]) for b in token]
    while len(x) > 2:
        i = min(range(len(x) - 1),
                key=lambda i: ranks.get(x[i] + x[i + 1], len(ranks)))
        x[i:i + 2] = [x[i] + x[i + 1]]
    return x


def qwen(path):
    """Ranks of a .tiktoken file, as they are, and in the package."""
    lines = [x.split() for x in open(path, "rb")]
    ranks = {base64.b64decode(x): int(n) for x, n in lines}
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letter = dict(zip(plain + [b for b in range(256) if b not in plain],
                      byte_letters()))
    word = {x: "".join(letter[b] for b in x) for x in ranks}
    merges = [tuple(word[p] for p in parts(ranks, x))
              for x in sorted(ranks, key=ranks.get) if len(x) > 1]
    t = Tokenizer(models.BPE({word[x]: n for x, n in ranks.items()}, merges))
    return ranks, qwen_form(t), merges


class Cleaned:
    """A tokenizer behind OpenAI's cleaning, which is ftfy and HTML."""

    def __init__(self, it):
        self.it = it

    def encode(self, text):
        import ftfy
        return self.it.encode(html.unescape(html.unescape(ftfy.fix_text(
            text, fix_encoding=False, fix_c1_controls=False,
            remove_terminal_escapes=False))))


class Tiktoken:
    """tiktoken with the face of the package tokenizers."""

    def __init__(self, ranks):
        import tiktoken
        special = {w: len(ranks) + i for i, w in
                   enumerate((EOT, "<|im_start|>", "<|im_end|>"))}
        self.it = tiktoken.Encoding("qwen", pat_str=QWEN2, special_tokens=
                                    special, mergeable_ranks=ranks)

    def encode(self, text):
        self.ids = self.it.encode(unicodedata.normalize("NFC", text),
                                  allowed_special="all")
        return self


def older_files(t, folder, name, merges):
    """vocab.json and merges.txt of a tokenizer."""
    whole = json.loads(t.to_str())
    os.makedirs(folder)
    json.dump(whole["model"]["vocab"], open(f"{folder}/vocab.json", "w"))
    with open(f"{folder}/merges.txt", "w") as f:
        f.write("#version: 0.2\n" + "".join(
            " ".join(m) + "\n" for m in merges))
    json.dump({"tokenizer_class": name, "added_tokens_decoder": {
        str(a["id"]): a for a in whole["added_tokens"]}},
        open(f"{folder}/tokenizer_config.json", "w"))


def ids(spec, text):
    done = subprocess.run([DPC, "data", "tokens", "-", "--tokenizer", spec],
                          input=text.encode(), capture_output=True)
    if done.returncode:
        sys.exit(f"{spec}: {done.stderr.decode()}")
    return [int(x) for x in done.stdout.split()]


def compare(name, t, spec, texts):
    bad = 0
    for text in texts:
        want, have = t.encode(text).ids, ids(spec, text)
        if want != have:
            bad += 1
            print(f"FAIL {name}: {text[:60]!r}\n  wanted {want[:24]}\n"
                  f"  has    {have[:24]}")
    print(f"{name}: {len(texts) - bad} of {len(texts)} texts agree")
    return bad


def main():
    work, bad = tempfile.mkdtemp(), 0
    clip, merges = clip_small(600)
    qwen2 = qwen_small(400)
    qmerges = json.loads(qwen2.to_str())["model"]["merges"]
    given = {os.path.splitext(x)[1]: x for x in sys.argv[1:]}
    made = [("clip", clip, "CLIPTokenizer", merges),
            ("qwen2", qwen2, "Qwen2Tokenizer", qmerges)]
    if ".tiktoken" in given:
        ranks, whole, wmerges = qwen(given[".tiktoken"])
        made.append(("qwen2-whole", whole, "Qwen2Tokenizer", wmerges))
    for name, t, cls, m in made:
        os.makedirs(f"{work}/{name}")
        t.save(f"{work}/{name}/tokenizer.json")
        older_files(t, f"{work}/{name}-old", cls, m)
        for form in (name, f"{name}-old"):
            bad += compare(form, t, f"{work}/{form}", TEXTS + LONG)
    if ".tiktoken" in given:
        bad += compare("tiktoken", Tiktoken(ranks), f"{work}/qwen2-whole",
                       TEXTS)
    if ".gz" in given:
        # A Croatian digraph, in a byte more, stays whole in dpc.
        texts = [x.replace("\u01c5", "") for x in TEXTS]
        bad += compare("openai", Cleaned(openai(given[".gz"])), given[".gz"],
                       texts + WEB + LONG)
    sys.exit(bad > 0)


main()
