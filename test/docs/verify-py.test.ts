import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { recomputer } from '../../db/ledger/verify/recompute.ts'
import { livedExport } from '../support/db/lived.ts'
import { canonical, exportOf, leafOf, resealed } from '../support/db/resealed.ts'
import { oddStates, sameStates, withState } from '../support/docs/states.ts'
import type { Json } from '../support/gateway.ts'
import { mcpStage, tool, toolServer } from '../support/mcp/stage.ts'
import { verbsInTurn } from '../support/verbs-in-turn.ts'

const sallyport = verbsInTurn(t)

const SCRIPT = join(import.meta.dirname, '../../docs/verify.py')
const python = spawnSync('python3', ['-c', 'import sys; sys.exit(sys.version_info < (3, 9))'])
const skip = python.status === 0 ? false : 'python3 (3.9 or newer) is not installed here'

/** What the page's own verifier says of an export on standard input. */
function verify(input: string | Buffer, ...args: string[]) {
  const { status, stdout, stderr } = spawnSync('python3', [SCRIPT, '-', ...args], { input, encoding: 'utf8' })
  return { code: status, out: stdout, err: stderr }
}

const recomputed = (rows: readonly Json[]) => {
  const walk = recomputer()
  for (const row of rows)
    walk.add({ ...row, detail: canonical(row.detail), leaf: canonical(leafOf(row)) } as Parameters<
      typeof walk.add
    >[0])
  return walk.result()
}

const placesOf = (problems: readonly Json[]): readonly string[] =>
  problems.map(({ stream, seq }) => `${stream}:${seq}`)

/** The first row of this kind. */
const find = (rows: readonly Json[], is: (row: Json) => unknown): number => {
  const index = rows.findIndex((row) => is(row))
  if (index < 0) throw new Error('there is no such row in the history')
  return index
}

const denied = (reason: string) => (row: Json) => row.status === 'denied' && row.detail.reason === reason
const narrowed = ({ status, detail }: Json) => status === 'allowed' && detail.authority.scope
const proven = ({ status, dpop_jkt: jkt, detail }: Json) =>
  status === 'allowed' && jkt !== null && !detail.authority.token && detail.authority.revision > 1

type Forgery = readonly [
  name: string,
  of: (row: Json) => unknown,
  forge: (row: Json, authority: Json) => unknown,
]

const allowed = (row: Json) => row.status === 'allowed' && row.principal_id === 'acme::granted'
const again = (row: Json) => allowed(row) && row.detail.authority.revision > 1
const FORGERIES: readonly Forgery[] = [
  ['demanded', allowed, (_, a) => Object.assign(a, { demanded: ['other'] })],
  ['demanded, nothing', allowed, (_, a) => Object.assign(a, { demanded: [] })],
  ['demanded, of a refusal', denied('capability_missing'), (_, a) => Object.assign(a, { demanded: ['x'] })],
  ['revision before', again, (_, a) => Object.assign(a, { revision: a.revision - 1 })],
  ['revision that nobody made', allowed, (_, a) => Object.assign(a, { revision: 99 })],
  ['revision left out', allowed, (_, a) => delete a.revision],
  ['scope', allowed, (_, a) => Object.assign(a, { scope: ['other'] })],
  ['scope, another one', narrowed, (_, a) => Object.assign(a, { scope: ['other'] })],
  ['token left out', narrowed, (_, a) => delete a.token],
  ['token without a key', allowed, (_, a) => Object.assign(a, { token: true })],
  ['token that is no truth', allowed, (_, a) => Object.assign(a, { token: 1 })],
  ['mode', allowed, (_, a) => Object.assign(a.mode, { egress_dpop_mode: 'off' })],
  [
    'mode of a refusal',
    denied('proof_required'),
    (_, a) => Object.assign(a.mode, { egress_dpop_mode: 'off' }),
  ],
  ['no_downgrade', allowed, (_, a) => Object.assign(a.mode, { no_downgrade: true })],
  ['checks left out', allowed, (_, a) => delete a.checks],
  ['one check left out', allowed, (_, a) => a.checks.pop()],
  ['a check more', allowed, (_, a) => a.checks.push({ name: 'x', digest: 'x', verdict: 'pass' })],
  ['a check’s digest', allowed, (_, a) => Object.assign(a.checks[0], { digest: 'x' })],
  ['a check’s verdict', allowed, (_, a) => Object.assign(a.checks[0], { verdict: 'refuse' })],
  ['a shadow that is none', allowed, (_, a) => Object.assign(a.checks[0], { shadow: true })],
  [
    'a check that did not refuse',
    denied('policy_denied'),
    (_, a) => Object.assign(a.checks[0], { verdict: 'pass' }),
  ],
  ['authority left out', allowed, (row) => delete row.detail.authority],
  ['refused, though it may', allowed, (row) => refuse(row, 'capability_missing')],
  ['let through, though it may not', denied('capability_missing'), (row) => letThrough(row)],
  ['reason', denied('capability_missing'), (row) => Object.assign(row.detail, { reason: 'proof_required' })],
  [
    'required_capability',
    denied('capability_missing'),
    ({ detail }) => Object.assign(detail, { required_capability: 'other' }),
  ],
  ['certificate', allowed, (row) => Object.assign(row, { cert_thumbprint: 'cd'.repeat(32) })],
  ['certificate left out', allowed, (row) => Object.assign(row, { cert_thumbprint: null })],
  ['key', proven, (row) => Object.assign(row, { dpop_jkt: 'x'.repeat(43) })],
  ['principal', allowed, (row) => Object.assign(row, { principal_id: 'acme::nobody' })],
  ['configuration', allowed, (row) => Object.assign(row, { config_digest: 'ef'.repeat(32) })],
  ['action', allowed, (row) => Object.assign(row, { action: 'mcp_tools_list' })],
]

const refuse = (row: Json, reason: string): void => {
  row.status = 'denied'
  Object.assign(row.detail, { reason, required_capability: 'llm.chat' })
}

const letThrough = (row: Json): void => {
  row.status = 'allowed'
  delete row.detail.reason
}

await t.test('a verifier that was written from docs/ledger.md alone', { skip }, async (t) => {
  const { file, answers } = await livedExport(t)
  for (const answer of ['200', '400', '401 proof_required', '403 policy_denied', '401 principal_deactivated'])
    t.ok(
      answers.some((each) => each.startsWith(answer)),
      `a call was answered ${answer}`,
    )
  const text = readFileSync(file, 'utf8')
  const rows: readonly Json[] = text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))

  const stream = rows[0].stream

  await t.test('docs/ledger.md#recomputing says what sallyport verify says of a lived history', async (t) => {
    const ours = await sallyport(['verify', file, '--authority'])
    t.equal(ours.code, 0, ours.out)
    t.match(ours.out, /recomputed [1-9]\d+, disagree 0, not recomputable 1 \(why: 1 refused for what/)
    t.same(verify(text, '--authority'), ours)
    const { authority } = JSON.parse(verify(text, '--authority', '--json').out)
    t.same(authority, recomputed(rows))
    t.same(verify(text).out, (await sallyport(['verify', file])).out)
  })

  await t.test('docs/ledger.md#authority each member that is forged is named, by both', async (t) => {
    t.equal(exportOf(resealed(rows)), text, 'what is sealed anew without a change is the same')
    for (const [name, of, forge] of FORGERIES) {
      const index = find(rows, of)
      const forged = structuredClone(rows[index])
      forge(forged, forged.detail.authority)
      const chain = resealed(rows.with(index, forged))
      const { code, out, err } = verify(exportOf(chain), '--authority', '--json')
      t.equal(code, 5, `${name}: ${out}${err}`)
      const { problems } = JSON.parse(out).authority
      const place = `${stream}:${index + 1}`
      t.ok(placesOf(problems).includes(place), `${name}: ${out}`)
      t.ok(placesOf(recomputed(chain).problems).includes(place), `${name}, by sallyport verify`)
    }
    const index = find(rows, again)
    const chain = resealed(rows.toSpliced(index + 1, 1))
    writeFileSync(file, exportOf(chain))
    const lost = await sallyport(['verify', file, '--authority'])
    const said = verify(exportOf(chain), '--authority')
    t.match([lost.code, said.code], [0, 0], 'a call that is under way is no fault')
    const headless = exportOf(resealed(rows.slice(1)))
    writeFileSync(file, headless)
    const ours = await sallyport(['verify', file, '--authority'])
    t.match(ours, {
      code: 2,
      out: /^BAD: stream \w+ does not begin with service\.started\nrows that follow each/,
    })
    t.same(verify(headless, '--authority'), ours, 'a beginning that is left out')
    const twice = resealed([...rows, rows[index + 1]])
    t.match(verify(exportOf(twice), '--authority'), {
      code: 5,
      out: `DISAGREES: row ${stream}:${rows.length + 1} `,
    })
  })

  await t.test('docs/ledger.md#state both leave the same state behind each row, and go on from it', (t) => {
    sameStates(t, rows)
    oddStates(t, rows)
    const said = exportOf(withState(rows, rows.length - 5))
    const lied = exportOf(withState(rows, rows.length - 5, 'ab'.repeat(32)))
    const [ours, forged] = [join(t.testdir(), 'said.ndjson'), join(t.testdir(), 'lied.ndjson')]
    writeFileSync(ours, said)
    writeFileSync(forged, lied)
    const python = (file: string) =>
      spawnSync('python3', [SCRIPT, file, '--authority', '--json'], { encoding: 'utf8' })
    t.match(JSON.parse(python(ours).stdout).authority, { states: 1, disagree: 0 })
    t.match(JSON.parse(python(forged).stdout).authority, { states: 0, disagree: 1 })
    t.match(JSON.parse(verify(said, '--authority', '--json').out).authority.not_recomputable, {
      'a state of rows that were not walked': 1,
    })
    t.equal(python(forged).status, 5)
    return Promise.all(
      [ours, forged].map(async (file, code) => {
        const found = await sallyport(['verify', file, '--authority', '--json'])
        t.equal(found.code, code * 5)
        t.same(JSON.parse(found.out).authority, JSON.parse(python(file).stdout).authority)
      }),
    )
  })

  await t.test('docs/ledger.md#verifying a byte that was changed is 2, what is no export 9', (t) => {
    const at = text.split('\n')
    const bad = (line: string, place: string, name: string) =>
      t.match(
        verify(at.with(3, line).join('\n'), '--authority'),
        { code: 2, out: `BAD: row ${place} ` },
        name,
      )
    const honest = at[3] ?? ''
    bad(honest.replace('"allowed"', '"allowee"'), `${stream}:4`, 'a byte')
    bad(honest.replace('{', '{ '), `${stream}:4`, 'a blank')
    bad(honest.replace('{', '{"action":"x",'), `${stream}:4`, 'a member twice')
    bad(honest.replace('"seq":4', '"seq":4.0'), `${stream}:4`, 'a number with a point')
    bad(honest.replace('gpt-test', '\\ud800'), `${stream}:4`, 'half a character')
    bad(honest.replace('gpt-test', 'x'.repeat(3_000_000)), `${stream}:4`, 'a line that no row can be')
    bad(
      honest.replace('"detail":{', `"detail":{"a":${'['.repeat(50_000)}${']'.repeat(50_000)},`),
      `${stream}:4`,
      'depth',
    )
    bad(at[4] ?? '', `${stream}:4`, 'a gap')
    bad(at[2] ?? '', `${stream}:3`, 'a row twice')
    for (const other of ['', 'hello\n', '{"a":1}\n', '[]\n', `\uFEFF${text}`])
      t.match(verify(other), { code: 9, out: '', err: /^verify: / }, JSON.stringify(other.slice(0, 20)))
    t.match(verify(text, '--nonsense'), { code: 9, err: /usage:/ })
    t.match(verify('', '--help'), { code: 0, out: /usage:.*--authority/s })
    t.end()
  })
})

await t.test(
  'docs/ledger.md#rule calls of tools, as a gateway records them, and forged',
  { skip },
  async (t) => {
    const stage = await mcpStage(t)
    const server = await toolServer(t, [tool('read'), tool('write')])
    const bot = await stage.enroll('bot', ['mcp.tools.list', 'files.use'])
    const resource = await stage.register('files', server, {
      required_capability: 'files.use',
      tool_capabilities: { write: 'files.write' },
    })
    const round = async (): Promise<void> => {
      for (const at of ['', '/files', '/nope']) {
        await stage.rpc(bot, 'tools/list', { at })
        for (const name of ['files.read', 'files.write', 'files.nope', 'http.get'])
          await stage.callTool(bot, name, {}, { at })
      }
    }
    const path = `/v1/admin/mcp-resources/${resource.resource_id}`
    await round()
    await stage.bind(bot, resource)
    await round()
    await stage.admin('PATCH', path, { enabled: false })
    await round()
    await stage.admin('PATCH', path, { enabled: true, required_capability: null })
    await stage.grant(bot, [])
    await round()
    await stage.close(0)
    const file = join(t.testdir(), 'audit.ndjson')
    await sallyport(['export-audit', stage.settings.databaseUrl, '--out', file])
    const rows: readonly Json[] = readFileSync(file, 'utf8')
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
    const honest = verify(exportOf(rows), '--authority', '--json')
    t.equal(honest.code, 0, honest.out)
    t.same(JSON.parse(honest.out).authority, recomputed(rows))
    sameStates(t, rows)
    const index = find(rows, (row) => row.status === 'allowed' && row.tool === 'files.read')
    const forgeries: Readonly<Record<string, object>> = {
      resource: { resource: { id: 'mcpr_2', revision: 1 } },
      'its revision': { resource: { id: resource.resource_id, revision: 9 } },
      binding: { binding: 'mcpb_2' },
      pin: { pin: 'd' },
      demanded: { demanded: ['files.write'] },
    }
    for (const [name, forged] of Object.entries(forgeries)) {
      const row = structuredClone(rows[index])
      Object.assign(row.detail.authority, forged)
      const chain = resealed(rows.with(index, row))
      const { code, out } = verify(exportOf(chain), '--authority', '--json')
      t.same([code, placesOf(JSON.parse(out).authority.problems)], [5, [`${row.stream}:${index + 1}`]], name)
      t.same(
        placesOf(recomputed(chain).problems),
        [`${row.stream}:${index + 1}`],
        `${name}, by sallyport verify`,
      )
    }
  },
)
