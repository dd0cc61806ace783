#!/usr/bin/env bash
# Holds kvscale against a real vLLM (CPU build, AVX-512) and a real llama-server over HTTP: fingerprints, decisions, loads, kills. Not part of the suite: half an hour
# on an idle machine of 2 cores.
#   scripts/test-engines.sh MODEL [fingerprint|decide|load|kill|selective|llama]... (default: the first four)
# MODEL: SmolLM2-135M-Instruct as a Hugging Face directory; for selective Qwen2.5-Coder-1.5B, for llama a GGUF file. Environment: KVSCALE (the program), KVSCALE_VLLM
# (virtual environment with vLLM, default ~/.cache/kvscale/vllm), KVSCALE_LLAMA (one with xllamacpp, default ~/.cache/kvscale/llama), KVSCALE_ENGINES_FOLDER (for
# logs and runs; given again, decisions go on there).
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

model=$(realpath "${1:?usage: test-engines.sh MODEL [fingerprint|decide|load|kill|selective|llama]...}")
shift
parts=("$@")
(($# > 0)) || parts=(fingerprint decide load kill)
kvscale=$(realpath "${KVSCALE:-$(build_folder release)/src/cli/kvscale}")
venv=${KVSCALE_VLLM:-${XDG_CACHE_HOME:-$HOME/.cache}/kvscale/vllm}
llama_venv=${KVSCALE_LLAMA:-${XDG_CACHE_HOME:-$HOME/.cache}/kvscale/llama}
if [[ " ${parts[*]} " == *" llama "* ]]; then
  [[ -x $llama_venv/bin/python ]] || fail "no xllamacpp at $llama_venv: set KVSCALE_LLAMA"
fi
if [[ ${parts[*]} != llama ]]; then
  [[ -x $venv/bin/python ]] || fail "no vLLM at $venv: set KVSCALE_VLLM"
fi
folder=${KVSCALE_ENGINES_FOLDER:-$(mktemp -d)}
mkdir -p "$folder"
cd "$folder"
export VLLM_CPU_KVCACHE_SPACE=1 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 OMP_WAIT_POLICY=passive
vllm="$venv/bin/python -m vllm.entrypoints.openai.api_server --enforce-eager --dtype bfloat16 --max-model-len 2048"

declare -A servers=()
stop() {
  local pid=${servers[$1]:-}
  [[ -z $pid ]] || { kill -- "-$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true; }
  unset "servers[$1]"
}
trap 'for one in "${!servers[@]}"; do stop "$one"; done' EXIT

# start NAME PORT DIRECTORY [FLAG...]: in a process group of its own; returns when it is healthy.
start() {
  local name=$1 port=$2 directory=$3
  shift 3
  # shellcheck disable=SC2086
  setsid nice $vllm --model "$directory" --port "$port" "$@" >"$name.log" 2>&1 &
  servers[$name]=$!
  for _ in $(seq 900); do
    ! curl -sf "127.0.0.1:$port/health" >/dev/null || return 0
    kill -0 "${servers[$name]}" 2>/dev/null || fail "$name: the server ended ($folder/$name.log)"
    sleep 1
  done
  fail "$name: not healthy within 15 minutes ($folder/$name.log)"
}

# swap_scales DIRECTORY: K's and V's scales of the even layers change places.
swap_scales() {
  python3 - "$1" <<'PY'
import json, pathlib, re, struct, sys
folder = pathlib.Path(sys.argv[1])
places = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
for name in {file for tensor, file in places.items() if tensor.endswith("k_scale")}:
    data = (folder / name).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    for tensor in head:
        layer = re.search(r"layers\.(\d+)\.self_attn\.k_scale$", tensor)
        if layer and int(layer[1]) % 2 == 0:
            k, v = head[tensor], head[tensor.replace("k_scale", "v_scale")]
            k["data_offsets"], v["data_offsets"] = v["data_offsets"], k["data_offsets"]
    text = json.dumps(head, separators=(",", ":")).encode().ljust(size)
    (folder / name).unlink()  # it is a link to the other export's
    (folder / name).write_bytes(data[:8] + text + data[8 + size:])
PY
}

# fingerprint NAME EXPECTED DIRECTORY [FLAG...]: what verify says of a server beside the control at port 8701.
fingerprint() {
  local name=$1 expected=$2 directory=$3 said
  shift 3
  start "$name" 8702 "$directory" "$@"
  "$kvscale" verify "$model" --control http://127.0.0.1:8701 --candidate http://127.0.0.1:8702 --scales per_head \
    --record "$name.jsonl" >"$name.out" 2>"$name.err" || true
  said=$(head -n 1 "$name.out")
  stop "$name"
  [[ $said == *"$expected"* ]] || fail "fingerprint of $name: expected \"$expected\", found \"$said\" ($folder/$name.out)"
  step "fingerprint of $name: $said, $(grep -o '[0-9]* tokens' "$name.out" | sed -n 2p)"
}

all_fingerprints() {
  step "fingerprint: calibrated exports"
  head -c 8000 /usr/share/common-licenses/GPL-3 | tail -c 5000 >text.txt
  [[ -f calibration/scales.json ]] || "$kvscale" calibrate "$model" --prompts text.txt --out calibration >calibration.log 2>&1
  local layout
  for layout in tensor head; do
    [[ -d per_$layout ]] ||
      "$kvscale" export "$model" --scales calibration/scales.json --for vllm --layout "fp8_$layout" --out "per_$layout" >"export_$layout.log" 2>&1
  done
  [[ -d swapped ]] || { cp -rl per_tensor swapped && swap_scales swapped; }
  start control 8701 "$model"
  fingerprint auto "not quantized" "$model"
  fingerprint scale1 "runs: scale 1.0, truncated" "$model" --kv-cache-dtype fp8
  fingerprint tensor "runs: one scale per tensor, the largest of its heads', truncated" per_tensor
  fingerprint head "runs: one scale per tensor, the largest of its heads', truncated" per_head
  fingerprint e5m2 "runs: E5M2 with scale 1.0, truncated" "$model" --kv-cache-dtype fp8_e5m2
  fingerprint swapped "runs: scales of K and V swapped in the even layers, truncated" swapped
  fingerprint token_head "none of these" "$model" --kv-cache-dtype fp8_per_token_head
  stop control
}

# Words of every decision here: small documents, the margin that few questions can keep.
common=(--margin quick --buckets "${KVSCALE_ENGINES_BUCKET:-256}" --questions 4 --tasks "${KVSCALE_ENGINES_TASKS:-niah_single}")
documents=(--documents "${KVSCALE_ENGINES_DOCUMENTS:-50}")
vllm_launch="exec $vllm --model {model} --port {port} {flags}"

# decide OUT WORD...: prints the exit code.
decide() {
  local out=$1
  shift
  nice "$kvscale" decide "$model" --out "$out" "$@" >"$out.txt" 2>>"$out.err" && echo 0 || echo $?
}

# holds OUT FIELD EXPECTED: of decision.json.
holds() {
  local found
  found=$(python3 -c "import json,sys; print(json.load(open(sys.argv[1] + '/decision.json'))[sys.argv[2]])" "$1" "$2")
  [[ $found == "$3" ]] || fail "$1: $2: expected $3, found $found ($folder)"
}

names() { grep -q "$2" "$1/decision.json" || fail "$1: decision.json does not say: $2 ($folder)"; }

expect_verdict() {
  [[ -f $1/decision.json ]] || { tail -n 20 "$1.err"; fail "$1: no verdict, exit code $2 ($folder)"; }
}

decide_harmless() {
  step "decide: scale 1.0, per token and head; calibrated per tensor"
  local code
  code=$(decide smollm2 --engine vllm:cpu --launch "$vllm_launch" --candidate fp8_scale1 --candidate fp8_tensor --candidate fp8_token_head "${common[@]}" "${documents[@]}")
  expect_verdict smollm2 "$code"
  names smollm2 'fp8_token_head: .* as with FP8 without inline scales'
  names smollm2 'fp8_token_head: CPU_ATTN accepts it and stores garbage (prefill lane: '
  holds smollm2 outcome KEEP_SCALE_ONE
  [[ $code == 0 ]] || fail "expected exit code 0, found $code ($folder)"
  # The export comes to its questions only where scale 1.0 is not offered. It loses about one answer in 100, so 200 do not
  # show that it loses less than 2.5 points.
  code=$(decide calibrated --engine vllm:cpu --launch "$vllm_launch" --candidate fp8_tensor --margin-overall 5 "${common[@]}" "${documents[@]}")
  expect_verdict calibrated "$code"
  holds calibrated outcome CALIBRATE_PER_TENSOR
  step "decide: the same on kvscale's own engine"
  code=$(decide own --target vllm:cpu "${common[@]}" "${documents[@]}")
  expect_verdict own "$code"
  holds own outcome KEEP_SCALE_ONE
}

# A part with a constant in the keys of one layer: few questions show it.
decide_selective() {
  step "decide: a model that FP8 breaks in one layer"
  local code
  code=$(decide selective --engine vllm:cpu --launch "$vllm_launch" --margin quick --margin-bucket 15 --margin-overall 15 --set margin.validity=0.15 \
    --set min_documents=20 --set aa_documents=4 --buckets 128 --documents 20 --questions 2 --tasks copy_span)
  expect_verdict selective "$code"
  holds selective outcome SELECTIVE_BF16
  holds selective bf16_layers "[0]"
  names selective 'kv-cache-dtype-skip-layers'
}

decide_llama() {
  step "decide: llama-server's F16 cache against q8_0"
  local code line="exec $llama_venv/bin/python $KV_ROOT/scripts/llama_server.py -m {model} --port {port} {flags}"
  code=$(decide llama --engine llama-server --launch "$line" "${common[@]}" "${documents[@]}")
  expect_verdict llama "$code"
  holds llama outcome KEEP_Q8_0
  names llama 'cache dtype q8_0'
}

# load NAME WORD...: control and scale 1.0 under load; every run must be on record.
load() {
  local name=$1
  shift
  nice "$kvscale" bench serve "$model" --engine vllm:cpu --launch "exec $vllm --kv-cache-memory-bytes 64000000 --model {model} --port {port} {flags}" --candidate fp8_scale1 \
    --shapes 128x16,384x16 --requests 6 --runs 2 --out "$name" "$@" >"$name.txt" 2>"$name.err" || { tail "$name.err"; fail "$name ($folder)"; }
  (($(wc -l <"$name/timing.jsonl") == 3 * 2 * 2)) || fail "$name: expected 12 timing records ($folder)"
  cat "$name.txt"
}

all_loads() {
  step "load: closed loop, capacity by preemptions"
  load closed --concurrency 3 --capacity 64
  python3 - closed/load.json <<'PY'
import json, sys
fits = {one["arm"]: one["cache_capacity_tokens"] for one in json.load(open(sys.argv[1]))["capacity"]}
gain = fits["fp8_scale1"] / fits["bf16"]
assert 1.7 <= gain <= 2.3, f"capacity: expected twice the tokens, found {fits}"
print(f"capacity: {gain:.2f} times the tokens by trying")
PY
  step "load: open loop"
  load open --rate 1 --concurrency 16
}

# A run whose server, then whose own process is killed; the same command ends it, and no answer is on record twice.
kill_and_resume() {
  step "kill: the server, then kvscale"
  local words=(--engine vllm:cpu --launch "$vllm_launch" --candidate fp8_scale1 --margin quick --buckets 128 --documents 30 --questions 2 --tasks niah_single) code victim
  for victim in server kvscale; do
    "$kvscale" decide "$model" --out killed "${words[@]}" >killed.txt 2>>killed.err &
    local pid=$! before
    before=$(wc -l <killed/records.jsonl 2>/dev/null || echo 0)
    until (($(wc -l <killed/records.jsonl 2>/dev/null || echo 0) > before + 12)); do
      kill -0 "$pid" 2>/dev/null || { tail killed.err; fail "kill: ended before it was killed ($folder)"; }
      sleep 0.2
    done
    if [[ $victim == server ]]; then kill -KILL -- "-$(pgrep -P "$pid" | head -n 1)"; else kill -KILL "$pid"; fi
    wait "$pid" && fail "kill: $victim: expected a failure" || true
    step "killed the $victim after $(wc -l <killed/records.jsonl) records"
  done
  code=$(decide killed "${words[@]}")
  expect_verdict killed "$code"
  [[ -z $(grep -o '"record_id":"[^"]*"' killed/records.jsonl | sort | uniq -d) ]] || fail "kill: a record is there twice ($folder)"
}

for part in "${parts[@]}"; do
  case $part in
    fingerprint) all_fingerprints ;;
    decide) decide_harmless ;;
    selective) decide_selective ;;
    llama) decide_llama ;;
    load) all_loads ;;
    kill) kill_and_resume ;;
    *) fail "expected fingerprint, decide, load, kill, selective or llama, found $part" ;;
  esac
done
[[ -z $(pgrep -f "$folder" || true) ]] || fail "a server outlived its run ($folder)"
step "engines: all held ($folder)"
