import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import type { ReceivedMessage } from './collector.ts'

const SCRIPT = join(import.meta.dirname, 'strict.py')

/** Has the official definitions parse messages. Resolves with what the reader prints: complaints, then a count. */
export async function parseStrictly(received: readonly ReceivedMessage[]): Promise<readonly string[]> {
  const child = spawn('python3', [SCRIPT], { stdio: ['pipe', 'pipe', 'inherit'] })
  child.stdin.end(received.map(({ signal, json: message }) => JSON.stringify({ signal, message })).join('\n'))
  return (await text(child.stdout)).trim().split('\n')
}
