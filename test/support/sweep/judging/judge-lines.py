"""Judges cases with docs/verify.py in one process: a line of JSON in (the arguments), a line of JSON out.

Each case runs in a module of its own, so nothing is left of the one before. What escapes `main` is exit code 1.
"""

import io
import json
import resource
import sys
import traceback

PROGRAM, MOST_BYTES = sys.argv[1], int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
with open(PROGRAM, encoding="utf-8") as file:
    CODE = compile(file.read(), PROGRAM, "exec")
ANSWERS, STDERR = sys.stdout, sys.stderr


def judged(arguments):
    sys.argv = [PROGRAM, *arguments]
    sys.stdout = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n")
    sys.stderr = said = io.StringIO()
    try:
        module = {"__name__": "verify"}
        exec(CODE, module)  # noqa: S102
        code = module["main"]()
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001
        code = 1
        said.write(traceback.format_exc())
    finally:
        sys.stdout.flush()
        out = sys.stdout.buffer.getvalue().decode()
        sys.stdout, sys.stderr = ANSWERS, STDERR
    return {"code": code, "out": out, "err": said.getvalue()}


for line in sys.stdin:
    print(json.dumps(judged(json.loads(line))), flush=True)
