"""Writes prepare.json: what the real TRL (1.16) makes of small sets of rows. usage: make-prepare.py MODELS_DIR OUT.json

Needs trl, datasets, transformers, torch. Each case: model, options, files (name -> rows); then train and eval as prepared
(null where TRL fails, with the error's text)."""
import json, os, sys, tempfile
import datasets, transformers
from datasets import load_dataset
from transformers import AutoTokenizer
from trl import DatasetMixtureConfig, SFTConfig, SFTTrainer, get_dataset

datasets.disable_progress_bars()
datasets.disable_caching()
transformers.logging.set_verbosity_error()
MODELS, OUT = sys.argv[1:3]
U = lambda s, **k: {"role": "user", "content": s, **k}
A = lambda s, **k: {"role": "assistant", "content": s, **k}
words = "the cat and the dog ran over a hill in the rain while nobody was there to see it happen".split()
text = lambda i, n: " ".join(words[(i * 7 + k) % len(words)] for k in range(n))
T = lambda n, spread=9: [{"text": text(i, 1 + i * 5 % spread)} for i in range(n)]
chats = [{"messages": [U(text(i, 3)), A(text(i + 1, 4)), U(text(i + 2, 2)), A(text(i + 3, 5))]} for i in range(3)]
tool = {"type": "function", "function": {"name": "add", "description": "adds é", "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}}
PC = [{"prompt": text(i, 4) + " ", "completion": text(i + 5, 3 + i)} for i in range(4)]
tok_rows = [{"input_ids": [5, 6, 7, 8, 9, 10][: 3 + i], "completion_mask": [0, 1, 1, 0, 1, 1][: 3 + i], "assistant_masks": [0, 1, 0, 1, 1, 1][: 3 + i]} for i in range(4)]
Q, Q3, L, G = "tiny-qwen2", "tiny-qwen3", "tiny-llama", "tiny-gpt2"
cases = []


def case(name, model, files, **options):
    if isinstance(files, list):
        files = {"train.jsonl": files}
    cases.append({"name": name, "model": model, "options": options, "files": files})


case("keep-end", L, T(6, 13), max_length=5, truncation_mode="keep_end")
case("text-field", Q, [{"body": r["text"], "n": 1} for r in T(3)], dataset_text_field="body")
case("text-with-eos", Q, [{"text": "a b<|im_end|>"}, {"text": "a b<|endoftext|>"}, {"text": ""}])
case("empty-text-with-bos", L, [{"text": ""}, {"text": "x"}])
case("from-value", Q3, [{"conversations": [{"from": "user", "value": "hi"}, {"from": "assistant", "value": "ho"}]},
                        {"conversations": [{"from": "human", "value": "hey"}, {"from": "gpt", "value": "you"}]}])
case("messages", Q3, chats)
case("messages-null-fields", Q3, [{"messages": [U("hi", name=None, tool_calls=None), A("ho", name=None)]}])
case("messages-reasoning", Q3, [{"messages": [U("hi"), A("ho", reasoning="because"), U("and"), A("so", reasoning="why not")]}])
case("tools", Q3, [{"messages": chats[0]["messages"], "tools": [tool]}, {"messages": chats[1]["messages"], "tools": [tool]}])
case("tools-string", Q3, [{"messages": chats[0]["messages"], "tools": json.dumps([tool])}, {"messages": chats[1]["messages"], "tools": "[]"}])
case("template-kwargs", Q3, [{"messages": chats[0]["messages"], "chat_template_kwargs": {"enable_thinking": False}},
                             {"messages": chats[1]["messages"], "chat_template_kwargs": {"enable_thinking": True}}])
case("pc-chat-kwargs", Q3, [{"prompt": [U("hi")], "completion": [A("ho")], "chat_template_kwargs": {"enable_thinking": False}}])
case("pc", Q, PC)
case("pc-full", Q, PC, completion_only_loss=False)
case("pc-with-text", Q, [{"text": "note", **r} for r in PC[:2]])
case("pc-empty", Q, [{"prompt": "", "completion": "a"}, {"prompt": "a", "completion": ""}])
case("pc-merge", Q, [{"prompt": "the ca", "completion": "t"}, {"prompt": "ab ", "completion": " c"}])
case("pc-label", Q, [{**r, "label": True} for r in PC[:2]])
case("pc-dropped", L, [{"prompt": text(0, 9), "completion": "x"}, {"prompt": "a ", "completion": "b"}], max_length=6)
case("pc-all-dropped", L, [{"prompt": text(0, 9), "completion": "x"}], max_length=3)
case("pc-chat", Q3, [{"prompt": [U(text(i, 3))], "completion": [A(text(i + 1, 2))]} for i in range(3)])
case("lm-completion-only", Q, T(2), completion_only_loss=True)
case("tokens", Q, [{"input_ids": [5, 6, 7]}, {"input_ids": [8]}])
case("tokens-labels", Q, [{"input_ids": [5, 6, 7], "labels": [-100, 6, 9]}, {"input_ids": [8, 9], "labels": [8, -100]}])
case("tokens-masks", Q, tok_rows)
case("tokens-masks-completion-only", Q, tok_rows, completion_only_loss=True)
case("tokens-cut", Q, [{"input_ids": list(range(5, 30)), "labels": list(range(5, 30))}, {"input_ids": [5, 6, 7], "labels": [-100, -100, 7]}], max_length=2)
case("tokens-empty", Q, [{"input_ids": [5, 6]}, {"input_ids": []}], max_length=4)
case("skip-prepare", Q, [{"input_ids": [5, 6, 7], "labels": [-100, 6, 7]}], dataset_kwargs={"skip_prepare_dataset": True}, max_length=2)
case("preference", Q, [{"prompt": "a", "chosen": "b", "rejected": "c"}])
case("chosen-only", Q, [{"chosen": "b", "rejected": "c"}])
case("prompt-only", Q, [{"prompt": "a"}])
case("completion-alone", Q, [{"completion": "a"}])
case("mixed-pc", Q, [{"prompt": "a", "completion": [A("b")]}])
case("message-not-object", Q3, [{"messages": ["hi"]}])
case("assistant-only-text", Q, T(2), assistant_only_loss=True)
for s in ("bfd", "bfd_split", "wrapped"):
    case("pack-" + s, L, T(12, 11), packing=True, packing_strategy=s, max_length=12)
    case("pack-shuffle-" + s, Q, T(12, 11), packing=True, packing_strategy=s, max_length=10, shuffle_dataset=True, seed=7)
case("pack-pc", Q, PC, packing=True, max_length=16)
case("shuffle", Q, T(9), shuffle_dataset=True, seed=3)
case("no-limit", Q, T(2, 40), max_length=None)
case("eval", Q, {"train.jsonl": T(4), "test.jsonl": T(3, 5)}, eval_strategy="steps")
case("eval-packing-off", Q, {"train.jsonl": T(6), "test.jsonl": T(4, 5)}, eval_strategy="steps", packing=True, eval_packing=False, max_length=8)
case("eval-packing-on", Q, {"train.jsonl": T(6), "test.jsonl": T(4, 5)}, eval_strategy="steps", eval_packing=True, max_length=8)
case("eval-shuffle", Q, {"train.jsonl": T(6), "test.jsonl": T(4, 5)}, eval_strategy="steps", shuffle_dataset=True)
case("eval-missing", Q, {"train.jsonl": T(4)}, eval_strategy="steps")
case("mixture", Q, {"a/train.jsonl": T(3), "b/x.jsonl": T(4, 5)}, datasets=[{"path": "a"}, {"path": "json", "data_files": "b/x.jsonl"}])
case("mixture-fractions", Q, {"a/train.jsonl": T(9), "b/train.jsonl": T(5, 4)}, datasets=[{"path": "a", "fraction": 0.25}, {"path": "b", "fraction": 0.5}])
case("mixture-fractions-half", Q, {"a/train.jsonl": T(5), "b/train.jsonl": T(5, 4)}, datasets=[{"path": "a", "fraction": 0.5}, {"path": "b", "fraction": 1}])
case("mixture-one-fraction", Q, {"a/train.jsonl": T(3), "b/train.jsonl": T(5, 4)}, datasets=[{"path": "a", "fraction": 0.25}, {"path": "b"}])
case("mixture-columns", Q, {"a/train.jsonl": [{"prompt": "p", "completion": "c", "text": "t"}]}, datasets=[{"path": "a", "columns": ["text"]}])
case("mixture-split", Q, {"a/train.jsonl": T(3), "a/test.jsonl": T(2, 3)}, datasets=[{"path": "a", "split": "test"}])


def prepared(ds):
    return None if ds is None else [[r["input_ids"], r["labels"] if "labels" in r else r["input_ids"]] + ([r["seq_lengths"]] if "seq_lengths" in r else []) for r in ds]


for c in cases:
    with tempfile.TemporaryDirectory() as tmp:
        for name, rows in c["files"].items():
            p = os.path.join(tmp, "data", name)
            os.makedirs(os.path.dirname(p), exist_ok=True)
            with open(p, "w") as f:
                f.writelines(json.dumps(r) + "\n" for r in rows)
        opt = dict(c["options"])
        mixture = opt.pop("datasets", None)
        os.chdir(os.path.join(tmp, "data"))
        try:
            if mixture:
                data = get_dataset(DatasetMixtureConfig(datasets=[dict(m, path="json", data_files="b/x.jsonl") if m["path"] == "json" else dict(m, path=os.path.join(tmp, "data", m["path"])) for m in mixture]))
            else:
                data = load_dataset(os.path.join(tmp, "data"))
            d = os.path.join(MODELS, c["model"])
            tr = SFTTrainer(model=d, args=SFTConfig(output_dir=os.path.join(tmp, "out"), bf16=False, use_cpu=True, report_to="none", **opt),
                            train_dataset=data["train"], eval_dataset=data["test"] if opt.get("eval_strategy", "no") != "no" else None,
                            processing_class=AutoTokenizer.from_pretrained(d))
            c["train"], c["eval"] = prepared(tr.train_dataset), prepared(tr.eval_dataset)
            if not c["train"]:
                raise ValueError("no rows left")
        except Exception as e:
            c["train"] = c["eval"] = None
            c["error"] = f"{type(e).__name__}: {e}"[:200]
        os.chdir("/")
    print(c["name"], c.get("error", len(c["train"] or [])), flush=True)
with open(OUT, "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
