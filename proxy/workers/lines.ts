import type { Readable } from 'node:stream'
import { StringDecoder } from 'node:string_decoder'

/** The longest that is held of a line without an end. Characters. */
const LONGEST = 1_048_576

/** Hands on what a process writes, never a part of a line: those of others may come in between. */
export function wholeLines(from: Readable, pass: (lines: string) => void): void {
  const decoder = new StringDecoder('utf8')
  let begun = ''
  from.on('data', (chunk: Buffer) => {
    const text = begun + decoder.write(chunk)
    const end = text.lastIndexOf('\n') + 1
    begun = text.slice(end)
    if (end > 0) pass(text.slice(0, end))
    if (begun.length > LONGEST) last()
  })
  const last = (): void => {
    if (begun !== '') pass(`${begun}\n`)
    begun = ''
  }
  from.once('close', last)
}
