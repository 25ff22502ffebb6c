#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# leaks.sh <libspillway.so with AddressSanitizer> <C compiler>: opens, trains and closes 1,000 engines from Python under
# LeakSanitizer, with refusals in between: nothing that the library asked for is left. Python leaves some of its own
# behind, so what counts is who asked. First one engine is forgotten on purpose, which has to be found.
# Skipped (77) where no Python has numpy; SPILLWAY_PYTHON names one.
set -eu
library=$(realpath "$1")
runtime=$("$2" -print-file-name=libasan.so)
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python=
for one in ${SPILLWAY_PYTHON:-python3 /usr/bin/python3}; do
    if "$one" -c 'import numpy' 2> /dev/null; then python=$one; break; fi
done
[ -n "$python" ] || { echo "skipped: no Python with numpy"; exit 77; }
[ -e "$runtime" ] || { echo "skipped: $2 has no libasan.so"; exit 77; }

cat > "$scratch/open.py" <<'EOF'
import json, sys
import numpy as np
import spillway

path, n, forget = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "forget"
model = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 11, "n_positions": 8, "n_embd": 4,
         "n_layer": 1, "n_head": 1}
with open(path, "w") as file:
    json.dump(model, file)
config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
          "spillway": {"threads": 1}}
ids = np.arange(10, dtype=np.int32).reshape(2, 5)
batch = {"input_ids": ids[:, :4], "labels": ids[:, 1:]}
text = path + ".txt"
with open(text, "w") as file:
    file.write("0123456789\n" * 9)
for i in range(n):
    engine = spillway.initialize(path, config, seq_len=4, generate_tokens=8, keep_gradients=True)
    engine.train_batch(batch)
    engine.gradient("transformer.wte.weight"), engine.generate([1, 2], 3), engine.plan()
    engine(batch) # and is closed in the middle of a step
    for wrong in (lambda: engine.train_batch({}), lambda: engine.export("/proc/no"), lambda: spillway.initialize(path, {"a": 1}),
                  lambda: spillway.initialize(path, config, sets={"spillway.device_memory": 4096})):
        try:
            wrong()
        except spillway.SpillwayError:
            continue
        sys.exit("it was not refused")
    if forget:
        engine._finalizer.detach()
        engine._pointer.value = 0
    else:
        engine.close()
    del engine
    if not forget:
        with spillway.initialize(path, config, seq_len=4, training_data=text) as engine:
            engine.train_batch()
print(n, "engines")
EOF

# found <n> <how>: whether a leak has the library among those who asked for it
found() {
    LD_PRELOAD=$runtime PYTHONMALLOC=malloc PYTHONPATH=$here/.. PYTHONDONTWRITEBYTECODE=1 SPILLWAY_LIBRARY=$library \
        ASAN_OPTIONS=detect_leaks=1:malloc_context_size=12 \
        "$python" "$scratch/open.py" "$scratch/config.json" "$1" "$2" > "$scratch/out" 2> "$scratch/err" || true
    if ! grep -q "^$1 engines" "$scratch/out" || grep -q 'ERROR: AddressSanitizer' "$scratch/err"; then
        head -n 40 "$scratch/err"
        exit 1
    fi
    grep -qE ' in sw_[a-z]|libspillway' "$scratch/err"
}
found 1 forget || { echo "leaks.sh: an engine that was forgotten was not found"; exit 1; }
if found "${SPILLWAY_OPENS:-1000}" close; then
    grep -E -B 12 ' in sw_[a-z]|libspillway' "$scratch/err" | head -n 60
    exit 1
fi
cat "$scratch/out"
