import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import t from 'tap'
import { PLUGIN_FILES, testGateway } from '../support/gateway.ts'
import { chatBytes, rawAnswer, statuses } from '../support/raw.ts'

const BYTES = 300_000

await t.test('A3 what came together of a provider’s answer is passed on together', async (t) => {
  const args = [join(import.meta.dirname, '../support/drip.ts'), 'server', 'text/event-stream', 'data: {']
  const child = spawn(process.execPath, [...args, String(BYTES), '}\n\n'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  t.teardown(() => child.kill('SIGKILL'))
  const [port] = await once(child.stdout, 'data')
  const url = `http://127.0.0.1:${String(port).trim()}`
  const files = { '50-llm.yaml': (PLUGIN_FILES['50-llm.yaml'] ?? '').replaceAll('UPSTREAM', url) }
  const gateway = await testGateway(t, { files })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const answer = await rawAnswer(t, gateway, bot, chatBytes('gpt-test', ['connection: close']))
  t.strictSame(statuses(answer), [200])
  const spaces = answer.split(' ').length
  t.ok(spaces > BYTES, 'all of it came')
  // A write for each byte, which the loop does nothing else beside, makes six bytes of it.
  t.ok(answer.length < 1.2 * BYTES, `${answer.length} bytes on the wire`)
})
