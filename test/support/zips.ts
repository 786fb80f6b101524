import { spawnSync } from 'node:child_process'

/** Changes a zip: Python's own library reads and writes it. `change` is Python over `files`, a dict of bytes. */
export function changed(from: string, to: string, change: string): void {
  const program = `
import hashlib, re, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as z:
    files = {n: z.read(n) for n in z.namelist()}
def resum():
    files["SHA256SUMS"] = "".join(f"{hashlib.sha256(d).hexdigest()}  {n}\\n" for n, d in files.items() if n != "SHA256SUMS").encode()
${change}
with zipfile.ZipFile(sys.argv[2], "w") as z:
    for n, d in files.items():
        z.writestr(n, d)
`
  const { status, stderr } = spawnSync('python3', ['-c', program, from, to], { encoding: 'utf8' })
  if (status !== 0) throw new Error(stderr)
}
