// Run as a process of its own: judges cases with `sallyport verify`, or the verb of the module that is named, a line of JSON in
// (the arguments), a line of JSON out. What a case throws beside the verb ends the process, as it would end the command.

import { createInterface } from 'node:readline'
import { jsonLine } from './judge.ts'

const { verb } = await import(process.argv[2] ?? '../../../../scripts/verbs/verify.ts')
const answer = process.stdout.write.bind(process.stdout)
for await (const line of createInterface({ input: process.stdin })) {
  const args: readonly string[] = JSON.parse(line)
  const said = { out: '', err: '' }
  process.stdout.write = (text) => {
    said.out += String(text)
    return true
  }
  process.stderr.write = (text) => {
    said.err += String(text)
    return true
  }
  const code = await verb.run(args)
  answer(`${jsonLine({ code, ...said })}\n`)
}
