"""llama-server with some of its own flags, from the Python package xllamacpp; for test-engines.sh.

llama_server.py -m MODEL.gguf --port PORT [-c CONTEXT] [-np SLOTS] [-t THREADS] [-ctk TYPE] [-ctv TYPE]
"""
import argparse
import signal

import xllamacpp


def cache_type(name):
    return getattr(xllamacpp.ggml_type, "GGML_TYPE_" + name.upper())


parser = argparse.ArgumentParser()
parser.add_argument("-m", "--model", required=True)
parser.add_argument("--port", type=int, required=True)
parser.add_argument("-c", "--ctx-size", type=int, default=2048)
parser.add_argument("-np", "--parallel", type=int, default=1)
parser.add_argument("-t", "--threads", type=int, default=1)
parser.add_argument("-ctk", "--cache-type-k", default="f16")
parser.add_argument("-ctv", "--cache-type-v", default="f16")
args = parser.parse_args()

params = xllamacpp.CommonParams()
params.model.path = args.model
params.n_ctx, params.n_parallel, params.port = args.ctx_size, args.parallel, args.port
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = args.threads
params.cache_type_k, params.cache_type_v = cache_type(args.cache_type_k), cache_type(args.cache_type_v)
params.endpoint_metrics = True
params.verbosity = 4  # the cache is named from here on
server = xllamacpp.Server(params)
print("listening on", server.listening_address, flush=True)
signal.sigwait({signal.SIGTERM, signal.SIGINT})
