// Run as a process of its own: judges cases with `sallyport verify`, a line of JSON in (the arguments), a line of JSON out.
// What a case throws beside the verb ends the process, as it would end the command.

import { createInterface } from 'node:readline'
import { verb } from '../../../../scripts/verbs/verify.ts'

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
  // The reader of lines would end one there.
  const text = JSON.stringify({ code, ...said })
    .replaceAll('\u2028', '\\u2028')
    .replaceAll('\u2029', '\\u2029')
  answer(`${text}\n`)
}
