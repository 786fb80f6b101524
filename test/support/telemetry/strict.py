"""Parses OTLP messages by the official definitions, and refuses every field that they do not have.

Reads a line of JSON for each message from standard input: {"signal": …, "message": …}. Prints what is wrong.
"""
import base64
import json
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KINDS = {
    'traces': ExportTraceServiceRequest,
    'metrics': ExportMetricsServiceRequest,
    'logs': ExportLogsServiceRequest,
}
LENGTHS = {'traceId': 32, 'spanId': 16, 'parentSpanId': 16}


def as_protobuf(value):
    """OTLP writes ids in hex, where protobuf's own JSON has base64; enumerations are numbers in both."""
    if isinstance(value, list):
        return [as_protobuf(one) for one in value]
    if not isinstance(value, dict):
        return value
    made = {}
    for name, member in value.items():
        if name in LENGTHS:
            if len(member) != LENGTHS[name]:
                raise ValueError(f'{name} is {len(member)} characters long')
            member = base64.b64encode(bytes.fromhex(member)).decode()
        made[name] = as_protobuf(member)
    return made


count = 0
for line in sys.stdin:
    given = json.loads(line)
    try:
        parsed = json_format.ParseDict(
            as_protobuf(given['message']), KINDS[given['signal']](), ignore_unknown_fields=False
        )
        if parsed.ByteSize() == 0:
            raise ValueError('nothing is in it')
        count += 1
    except Exception as error:
        print(f"{given['signal']}: {error}")
print(f'{count} parsed')
