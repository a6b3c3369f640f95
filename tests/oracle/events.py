"""Numbers and texts of a run as TensorBoard has them.

    events.py                  writes events.json: the bytes of records, made by TensorBoard's own classes
    events.py read FOLDER      prints what TensorBoard reads from the folder's event files, as JSON
"""
import json
import pathlib
import struct
import sys

from tensorboard.backend.event_processing import event_accumulator
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

ROWS = [
    {"step": 1, "loss": 2.5},
    {"step": 128, "loss": 1.25e-3, "grad_norm": float("inf"), "lr": 3e-4, "tokens_per_s": 26466.0},
    {"step": 3000000000, "loss": float("-inf"), "wait_ms": 0.0, "memory_peak": 57000000.0},
]
TEXTS = [("config", "| option | value |\n|---|---|\n| lr | 0.003 |", 0), ("sample", "ä €" * 60, 700)]
TIME = 1700000000.25


def scalars(row):
    summary = summary_pb2.Summary()
    for key in sorted(row):
        if key != "step":
            summary.value.add(tag=key, simple_value=row[key])
    return event_pb2.Event(wall_time=TIME, step=row["step"], summary=summary)


def text(tag, value, step):
    shape = tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=1)])
    tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, tensor_shape=shape, string_val=[value.encode()])
    metadata = summary_pb2.SummaryMetadata(
        plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="text"),
        data_class=summary_pb2.DATA_CLASS_TENSOR)
    summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, tensor=tensor, metadata=metadata)])
    return event_pb2.Event(wall_time=TIME, step=step, summary=summary)


class Bytes:
    def __init__(self):
        self.text = b""

    def write(self, text):
        self.text += text


def record(event):
    out = Bytes()
    RecordWriter(out).write(event.SerializeToString())
    return out.text.hex()


def number(x):
    return x if abs(x) != float("inf") else str(x)


def write():
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    found = {
        "time": TIME,
        "header": record(event_pb2.Event(wall_time=TIME, file_version="brain.Event:2")),
        "restart": {"step": 41, "record": record(event_pb2.Event(wall_time=TIME, step=41, session_log=start))},
        "rows": [{"row": {k: number(v) for k, v in row.items()}, "record": record(scalars(row))} for row in ROWS],
        "texts": [{"tag": t, "text": v, "step": s, "record": record(text(t, v, s))} for t, v, s in TEXTS],
    }
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n")


def read(folder):
    reader = event_accumulator.EventAccumulator(folder, size_guidance={
        event_accumulator.SCALARS: 0, event_accumulator.TENSORS: 0})
    reader.Reload()
    found = {"scalars": {}, "texts": {}}
    for tag in reader.Tags()["scalars"]:
        found["scalars"][tag] = [[e.step, struct.pack("<f", e.value).hex()] for e in reader.Scalars(tag)]
    for tag in reader.Tags()["tensors"]:
        plugin = reader.SummaryMetadata(tag).plugin_data.plugin_name
        assert plugin == "text", plugin
        found["texts"][tag] = [[e.step, e.tensor_proto.string_val[0].decode()] for e in reader.Tensors(tag)]
    print(json.dumps(found))


if sys.argv[1:2] == ["read"]:
    read(sys.argv[2])
else:
    write()
