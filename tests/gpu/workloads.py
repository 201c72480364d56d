# SPDX-License-Identifier: Apache-2.0
"""Real programs to run natively and through Gleam: prints one JSON line with set-up and per-step seconds and a checksum.

Usage: workloads.py NAME [ITERS | turns]
NAME: add gemm gemm16 resnet50 resnet50_train llm llm_graph compile weights cupy jax, or raw (the driver API alone, no framework)
Environment: GLEAM_BENCH_ATTN=eager|sdpa and GLEAM_BENCH_DTYPE=half|bfloat16|float32 (llm), GLEAM_BENCH_GB (weights).
With `turns` it prints a line when it is set up and has made its first four steps, with their checksum; then it reads lines: a number N makes
it do N steps and print their seconds, `sum` the checksum of the last one's result; at the end of its input it ends.
Seeds are fixed; the checksum of the last result must be the same natively and remotely on the same card.
"""
import json, sys, time
t0 = time.perf_counter()
name = sys.argv[1]
turns = sys.argv[2:] == ["turns"]
iters = int(sys.argv[2]) if len(sys.argv) > 2 and not turns else 20


def digest(arrays):
    """SHA-256 over the bytes of all result arrays: swapped or missing parts show."""
    import hashlib
    h = hashlib.sha256()
    for a in arrays: h.update(a.tobytes())
    return h.hexdigest()


def counters():
    """What Gleam's library has counted; None natively."""
    import ctypes
    try:
        ask = ctypes.CDLL("libcuda.so.1").gleam_counters
    except (OSError, AttributeError):
        return None
    values = (ctypes.c_ulonglong * 4)()
    ask(values)
    return list(values)


def timed(step, finish, count):
    """Seconds a step, what Gleam counted meanwhile, the last result."""
    before = counters()
    t1 = time.perf_counter()
    for _ in range(count): r = step()
    finish()
    took = (time.perf_counter() - t1) / count
    after = counters()
    out = {"iter_s": took}
    if before and after:
        out["gleam"] = dict(zip(("calls", "trips", "bytes", "waited_ns"), (b - a for a, b in zip(before, after))))
    return out, r


def play(step, finish, out, result):
    """The first steps, then the timed ones: ITERS of them, or as stdin asks. RESULT makes of a step's value what is summed up."""
    t1 = time.perf_counter(); r = step(); finish(); out["first_s"] = time.perf_counter() - t1
    for _ in range(3): r = step()
    finish()
    if not turns:
        more, r = timed(step, finish, iters)
        out.update(more, checksum=digest(result(r)))
        return out
    out["checksum"] = digest(result(r))
    print(json.dumps(dict(out, name=name, total_s=time.perf_counter() - t0)), flush=True)
    for line in sys.stdin:
        if line.strip() == "sum":
            more = {"checksum": digest(result(r))}
        else:
            more, r = timed(step, finish, int(line))
        print(json.dumps(more), flush=True)
    sys.exit(0)


def run_torch():
    import torch
    torch.manual_seed(0)
    out = {}
    t_import = time.perf_counter() - t0
    dev = torch.device("cuda")
    t1 = time.perf_counter()
    torch.zeros(1, device=dev); torch.cuda.synchronize()
    out["ctx_s"] = time.perf_counter() - t1
    t1 = time.perf_counter()
    if name == "add":
        a = torch.randn(1 << 20, device=dev); b = torch.randn(1 << 20, device=dev)
        step = lambda: (a + b)
    elif name == "gemm":
        a = torch.randn(1024, 1024, device=dev); b = torch.randn(1024, 1024, device=dev)
        step = lambda: (a @ b)
    elif name == "gemm16":
        ws = [torch.randn(2048, n, device=dev, dtype=torch.half) for n in (256, 2048, 5632, 32000)]
        xs = [torch.randn(m, 2048, device=dev, dtype=torch.half) for m in (1, 64)]
        step = lambda: [x @ w for x in xs for w in ws][-1]
    elif name == "resnet50":
        import torchvision
        m = torchvision.models.resnet50(weights=None).eval().to(dev)
        x = torch.randn(1, 3, 224, 224)
        step = lambda: m(x.to(dev)).cpu()
    elif name == "resnet50_train":
        import torchvision
        m = torchvision.models.resnet50(weights=None).train().to(dev)
        opt = torch.optim.SGD(m.parameters(), lr=0.1)
        x = torch.randn(16, 3, 224, 224); y = torch.randint(0, 1000, (16,))
        def step():
            opt.zero_grad(); loss = torch.nn.functional.cross_entropy(m(x.to(dev)), y.to(dev)); loss.backward(); opt.step(); return loss.item()
    elif name in ("llm", "llm_graph"):
        from transformers import LlamaConfig, LlamaForCausalLM, StaticCache
        cfg = LlamaConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4, vocab_size=32000, max_position_embeddings=2048)
        import os
        cfg._attn_implementation = os.environ.get("GLEAM_BENCH_ATTN", "sdpa")
        m = LlamaForCausalLM(cfg).to(getattr(torch, os.environ.get("GLEAM_BENCH_DTYPE", "half"))).eval().to(dev)
        out["params"] = sum(p.numel() for p in m.parameters())
        ids = torch.randint(0, 32000, (1, 64), device=dev)
        state = {}
        with torch.no_grad():
            o = m(ids, use_cache=True); state["past"] = o.past_key_values; state["tok"] = o.logits[:, -1:].argmax(-1)
        def step():
            with torch.no_grad():
                o = m(state["tok"], past_key_values=state["past"], use_cache=True)
                state["past"] = o.past_key_values; state["tok"] = o.logits[:, -1:].argmax(-1); state["logits"] = o.logits
                return state["tok"].item()
        if name == "llm_graph":
            s = torch.cuda.Stream(); static = ids[:, :1].clone()
            layer = m.model.embed_tokens
            w = torch.randn(2048, 2048, device=dev, dtype=torch.half) / 32; h = torch.randn(1, 2048, device=dev, dtype=torch.half)
            def body():
                y = h
                for _ in range(50):
                    y = torch.relu(y @ w)
                return y
            s.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(s):
                for _ in range(3): body()
            torch.cuda.current_stream().wait_stream(s)
            g = torch.cuda.CUDAGraph()
            with torch.cuda.graph(g): y = body()
            def step():
                g.replay(); return y.sum().item()
    elif name == "compile":
        f = torch.compile(lambda a, b: torch.relu(a * b + a).sum(-1))
        a = torch.randn(2048, 2048, device=dev); b = torch.randn(2048, 2048, device=dev)
        step = lambda: f(a, b)
    elif name == "weights":
        import os
        n = int(os.environ.get("GLEAM_BENCH_GB", "2"))
        host = [torch.randn(16 << 20) for _ in range(n * 16)]
        step = lambda: [h.to(dev) for h in host]
    torch.cuda.synchronize()
    out["model_s"] = time.perf_counter() - t1
    out["import_s"] = t_import

    def result(r):
        if name == "llm":
            r = state["logits"]   # the whole distribution, not only the token that step() reads back
        return [torch.as_tensor(t).detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy() for t in (r if isinstance(r, list) else [r])]
    return play(step, torch.cuda.synchronize, out, result)


def run_cupy():
    import cupy as cp
    a = cp.arange(1 << 20, dtype=cp.float32)
    k = cp.RawKernel(r'extern "C" __global__ void f(float*x,int n){int i=blockIdx.x*blockDim.x+threadIdx.x;if(i<n)x[i]*=2;}', 'f')
    def step():
        b = cp.sqrt(a) + a
        k((4096,), (256,), (b, 1 << 20))
        return b
    return play(step, cp.cuda.Device().synchronize, {}, lambda b: [cp.asnumpy(b)])


def run_jax():
    import jax, jax.numpy as jnp, numpy
    f = jax.jit(lambda x: jnp.tanh(x @ x).sum())
    x = jnp.ones((512, 512))
    last = []
    def step():
        last[:] = [f(x)]
        return last[0]
    return play(step, lambda: last[0].block_until_ready(), {}, lambda r: [numpy.asarray(r)])


def run_raw():
    import ctypes
    cuda = ctypes.CDLL("libcuda.so.1")
    def call(function, *arguments):
        code = getattr(cuda, function)(*arguments)
        if code: raise RuntimeError(f"{function}: {code}")
    context, memory, size = ctypes.c_void_p(), ctypes.c_uint64(), 1 << 20
    call("cuInit", 0); call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0); call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
    host, count = ctypes.create_string_buffer(size), [0]
    def step():
        count[0] += 1
        for part in range(8): call("cuMemsetD32Async", ctypes.c_uint64(memory.value + part * size // 8), count[0] + part, ctypes.c_size_t(size // 32), None)
        call("cuMemcpyDtoH_v2", host, memory, ctypes.c_size_t(4096))
        return host
    def result(r):
        call("cuMemcpyDtoH_v2", host, memory, ctypes.c_size_t(size))
        import array
        return [array.array("B", r.raw)]
    return play(step, lambda: call("cuCtxSynchronize"), {}, result)


res = {"cupy": run_cupy, "jax": run_jax, "raw": run_raw}.get(name, run_torch)()
res.update(name=name, iters=iters, total_s=time.perf_counter() - t0)
print(json.dumps(res), flush=True)
