// Run as a process of its own: runs command lines in turn, as test/support/verbs-in-turn.ts sends them. Each is a new run of
// the program's first file; the files behind it stay loaded.
import { on } from 'node:events'
import type { VerbToRun } from './verbs-in-turn.ts'

const PROGRAM = new URL('../../scripts/sallyport.ts', import.meta.url).href
let runs = 0

for await (const [message] of on(process, 'message', { close: ['disconnect'] })) {
  const { args, env } = message as VerbToRun
  process.argv.splice(2, Number.POSITIVE_INFINITY, ...args)
  for (const name of Object.keys(process.env)) delete process.env[name]
  Object.assign(process.env, env)
  const [out, err] = [caught(process.stdout), caught(process.stderr)]
  runs += 1
  await import(`${PROGRAM}?${runs}`)
  const { exitCode: code = 0 } = process
  process.exitCode = 0
  process.send?.({ code, out: out(), err: err() })
}

/** Has a stream keep what is written to it. Returns what reads it, as text. */
function caught(stream: NodeJS.WriteStream): () => string {
  const pieces: Uint8Array[] = []
  stream.write = (piece: Uint8Array | string, ...more: readonly unknown[]) => {
    pieces.push(Buffer.from(piece))
    const written = more.at(-1)
    if (typeof written === 'function') process.nextTick(written)
    return true
  }
  return () => Buffer.concat(pieces).toString()
}
