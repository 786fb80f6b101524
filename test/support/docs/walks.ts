import { spawnSync } from 'node:child_process'
import { join } from 'node:path'

const SCRIPT = join(import.meta.dirname, '../../../docs/verify.py')

const PYTHON = `
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("verify", sys.argv[1])
verify = importlib.util.module_from_spec(spec)
spec.loader.exec_module(verify)
for export in sys.stdin.buffer.read().split(b"\\f"):
    walk = verify.Walk()
    for line in export.splitlines():
        walk.see(verify.parse(line))
    print(json.dumps(walk.found()))
`

/** Has the verifier in Python judge the decisions of one export. */
interface PythonWalk {
  readonly recomputed: number
  readonly disagree: number
  readonly not_recomputable: Readonly<Record<string, number>>
  readonly problems: readonly { readonly stream: string; readonly seq: number; readonly problem: string }[]
}

/** Has the verifier in Python walk exports, all in one process. Throws what it cannot say. */
export function walkedByPython(exports: readonly string[]): readonly PythonWalk[] {
  const { stdout, stderr } = spawnSync('python3', ['-c', PYTHON, SCRIPT], {
    input: exports.join('\f'),
    encoding: 'utf8',
    maxBuffer: 2 ** 28,
  })
  if (stderr) throw new Error(stderr)
  return stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))
}
