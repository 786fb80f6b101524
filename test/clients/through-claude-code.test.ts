import t from 'tap'
import { type Home, homeOf, installed, linesOf, sectionOf } from '../support/clients/alone.ts'
import type { Ran } from '../support/clients/files.ts'
import { callsOf, SAID } from '../support/clients/sdk.ts'
import { DENIED, through, UNPROVEN } from '../support/clients/through.ts'

// The launcher for those who run no install scripts.
const { entry, skip } = installed('@anthropic-ai/claude-code', 'cli-wrapper.cjs')

/** Claude Code, asked once, with nothing but what the gateway needs of the network. */
const claude = (home: Home, ...args: readonly string[]): Promise<Ran> =>
  home.run(
    entry,
    ['-p', 'say hi', '--model', 'claude-test', ...args],
    ['CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1'],
  )

await t.test(
  '§5.2 Claude Code through the sidecar: an answer, a stream and a refusal, each call proven by DPoP',
  { skip },
  async (t) => {
    const way = await through(t)
    const home = await homeOf(t, linesOf(way))
    const answered = await claude(home)
    t.match(answered, { code: 0, out: `${SAID}\n` }, 'it answers', { err: answered.err })

    const events = ['--output-format', 'stream-json', '--verbose', '--include-partial-messages']
    const streamed = await claude(home, ...events)
    t.equal(streamed.code, 0, streamed.err)
    const pieces = [...streamed.out.matchAll(/"text_delta","text":("(?:[^"\\]|\\.)*")/g)]
    t.equal(pieces.map(([, text = '']) => JSON.parse(text)).join(''), SAID)
    t.ok(pieces.length > 5, 'piece by piece')

    await way.deny()
    const denied = await claude(home)
    t.match(denied, { code: 1, out: /^Failed to authenticate/ })
    t.ok(denied.out.includes(DENIED), 'it shows why it was denied')
    t.same(await way.proven(), ['allowed', 'allowed', 'denied'], 'and does not try again')
  },
)

await t.test(
  '§5.2 Claude Code with the certificate alone is refused where a proof is required, and says so',
  { skip },
  async (t) => {
    const way = await through(t)
    const home = await homeOf(t, sectionOf(linesOf(way, true), 'Claude Code with the certificate'))
    const refused = await claude(home)
    t.equal(refused.code, 1)
    t.ok(refused.out.includes(UNPROVEN), refused.out)
    t.same(await way.proven(), [])
    t.equal(callsOf(way.mock).length, 0, 'the provider heard nothing of it')
  },
)
