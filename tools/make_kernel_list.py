"""Write src/xmtc/core/kernels.json, the kernels that commands compile when they run for the first time.

    python tools/make_kernel_list.py [--check]

Trains and applies every model that needs no extra, and the preset fast, each in a process of its own, and records the
kernels they use, the types of their arguments and the time to compile them. With --check, exit with an error if the
list in the package differs in more than its order.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from xmtc.core.compile_ahead import LIST
from xmtc.data.demo_corpus import DemoCorpus
from xmtc.models.registry import MODELS

DOCUMENTS = 2000
VERBS = ("train", "tag", "predict")
STEPS = """
import json, sys
from pathlib import Path
import xmtc
from xmtc.core.compile_ahead import encode_type
from xmtc.core.kernel_cache import uses
verb, name, folder = sys.argv[1:]
documents = xmtc.read(Path(folder) / "documents.jsonl")
place = Path(folder) / name
if verb == "train" and name == "fast":
    xmtc.auto(documents, preset="fast", out=place)
elif verb == "train":
    xmtc.create(name).fit(documents).save(place)
elif verb == "tag":
    xmtc.load(place).predict(["How do I get red wine out of a carpet?"])
else:
    xmtc.load(place).predict(documents)
found = [[use.kernel, [encode_type(kind) for kind in use.types], use.seconds] for use in uses()]
print(json.dumps(found))
"""


def record(verb: str, name: str, folder: str) -> list[tuple[str, str, float]]:
    """The kernels that a verb uses for a model: name, types as JSON, and seconds to compile, 0 after the first use."""
    done = subprocess.run(
        [sys.executable, "-c", STEPS, verb, name, folder],
        env={**os.environ, "NUMBA_CACHE_DIR": str(Path(folder) / "cache")},
        check=True,
        capture_output=True,
        text=True,
    )
    return [(kernel, json.dumps(types), seconds) for kernel, types, seconds in json.loads(done.stdout)]


def main(check: bool) -> None:
    """Run all commands and write the list, or compare it with the one in the package."""
    seconds: dict[tuple[str, str], float] = {}
    purposes: dict[tuple[str, str], set[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "documents.jsonl").write_text(DemoCorpus(documents=DOCUMENTS).jsonl(0, DOCUMENTS))
        usable = [name for name in MODELS if not MODELS.builtin[name].extra and name != "consensus"]
        for name in [*usable, "fast"]:
            for verb in VERBS:
                for kernel, types, took in record(verb, name, folder):
                    seconds[kernel, types] = max(took, seconds.get((kernel, types), 0.0))
                    purposes.setdefault((kernel, types), set()).add(f"{verb} {name}")
    keys = sorted(seconds, key=lambda key: -seconds[key])
    entries = [
        {"kernel": kernel, "types": json.loads(types), "for": sorted(purposes[kernel, types])} for kernel, types in keys
    ]
    for key in keys:
        print(f"{seconds[key]:6.2f} s  {key[0]}", file=sys.stderr)
    if check:
        before = {json.dumps(entry, sort_keys=True) for entry in json.loads(LIST.read_text(encoding="utf-8"))}
        if before != {json.dumps(entry, sort_keys=True) for entry in entries}:
            sys.exit(f"{LIST}: is not up to date. Run tools/make_kernel_list.py.")
        return
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    LIST.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main("--check" in sys.argv[1:])
