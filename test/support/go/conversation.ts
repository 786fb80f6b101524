import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import type { Test } from 'tap'
import type { Json } from '../gateway.ts'

/** A program that speaks in lines of JSON, and ends with the test. */
export interface Conversation {
  /** The first line that it has said. */
  readonly first: Json
  /** Says a line; resolves with the line that answers it, which has its id. */
  readonly ask: (what: object) => Promise<Json>
}

/** Starts a program that says a line first, and then answers each line that it is told, in any order. */
export async function conversation(t: Test, program: string, args: readonly string[]): Promise<Conversation> {
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'ignore'] })
  const ended = once(child, 'exit')
  t.teardown(async () => {
    child.kill('SIGKILL')
    await ended
  })
  const lines = createInterface({ input: child.stdout })
  const [first] = await once(lines, 'line')
  const waiting = new Map<number, (answer: Json) => void>()
  lines.on('line', (line) => {
    const answer: Json = JSON.parse(line)
    waiting.get(answer.id)?.(answer)
    waiting.delete(answer.id)
  })
  let last = 0
  const ask: Conversation['ask'] = (what) =>
    new Promise((resolve) => {
      last += 1
      waiting.set(last, resolve)
      child.stdin.write(`${JSON.stringify({ id: last, ...what })}\n`)
    })
  return { first: JSON.parse(String(first)), ask }
}
