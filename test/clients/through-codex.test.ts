import t from 'tap'
import { type Home, homeOf, installed, linesOf, sectionOf } from '../support/clients/alone.ts'
import type { Ran } from '../support/clients/files.ts'
import { callsOf, SAID } from '../support/clients/sdk.ts'
import { DENIED, through, times } from '../support/clients/through.ts'

const ENTRY = 'bin/codex.js'

/** Codex, asked once. */
const ask = (entry: string, home: Home, ...args: readonly string[]): Promise<Ran> =>
  home.run(entry, ['exec', '--skip-git-repo-check', '--model', 'gpt-test', ...args, 'say hi'])

for (const [version, { entry, skip }] of [
  ['Codex', installed('@openai/codex', ENTRY)],
  ['Codex 0.121, which sends a header with an underscore,', installed('codex-0.121', ENTRY)],
] as const)
  await t.test(
    `§5.2 ${version} calls through the sidecar: an answer and a refusal, each call proven by DPoP`,
    { skip },
    async (t) => {
      const way = await through(t)
      const lines = linesOf(way)
      const home = await homeOf(t, lines)
      // For a shell they are comments.
      await home.put('.codex', 'config.toml', sectionOf(lines, 'Codex').replaceAll(/^# {3}/gm, ''))

      const answered = await ask(entry, home)
      t.match(answered, { code: 0, out: `${SAID}\n` }, 'it answers', { err: answered.err })
      t.match(
        callsOf(way.mock).at(-1),
        { path: '/v1/responses', body: { stream: true } },
        'which was a stream',
      )

      const { code, out } = await ask(entry, home, '--json')
      t.equal(code, 0)
      t.match(
        out,
        /"type":"turn\.completed","usage":\{"input_tokens":7,.*"output_tokens":9[,}]/,
        'to its end',
      )

      await way.deny()
      // It repeats what was refused as often as it is told to, whatever the answer advises.
      const retries = 1
      const denied = await ask(entry, home, '-c', `model_providers.sallyport.stream_max_retries=${retries}`)
      t.equal(denied.code, 1)
      t.ok(denied.err.includes(`403 Forbidden: ${DENIED}`), 'it shows why it was denied')
      t.same(await way.proven(), [...times(2, 'allowed'), ...times(1 + retries, 'denied')])
    },
  )
