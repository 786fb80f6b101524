import { spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import t from 'tap'
import { TLS_DIRECT } from '../../support/gateway.ts'
import { WHOLE_SWEEP } from '../../support/sweep-places.ts'

// The other way, where TLS lies on the socket, is the one of all tests.
const TESTS_OF_TLS = [
  'test/attacks/handshakes',
  'test/attacks/plain-http',
  'test/attacks/answered-early',
  'test/attacks/proxy-protocol',
  'test/clients/node-tls',
]

t.setTimeout(600_000)

/** A run takes every second one, by chance which, and a whole sweep all. */
const TURN = randomInt(2)

for (const [place, file] of TESTS_OF_TLS.entries()) {
  const skip = WHOLE_SWEEP || place % 2 === TURN ? false : 'another run takes it'
  await t.test(`${file} passes where TLS lies on streams`, { skip }, async (t) => {
    t.setTimeout(300_000)
    const child = spawn(process.execPath, [`${file}.test.ts`], {
      env: { ...process.env, NODE_OPTIONS: undefined, [TLS_DIRECT]: 'false' },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const [said, [code]] = await Promise.all([text(child.stdout), once(child, 'exit')])
    t.equal(code, 0, said.includes('not ok') ? said : file)
  })
}
