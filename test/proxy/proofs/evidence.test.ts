import { spawnSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { ENGINE } from '../../support/db/engine.ts'
import { type Identity, scratch, type TestGateway, testGateway } from '../../support/gateway.ts'
import { signer } from '../../support/sealed-log.ts'
import { eventually } from '../../support/settled.ts'
import { allVerifiers, withoutPython } from '../../support/verifiers.ts'
import { changed } from '../../support/zips.ts'

const verify = allVerifiers(t)
const CHAT = { model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'hello' }] }

async function called(gateway: TestGateway, who: Identity, times: number): Promise<void> {
  const ids = await Promise.all(
    Array.from({ length: times }, async () =>
      String(
        (await gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })).headers['x-request-id'],
      ),
    ),
  )
  const last = ids.at(-1) ?? ''
  await eventually(
    () => gateway.call(who, 'GET', `/v1/audit/proofs/${last}`),
    ({ status, json }) => status === 200 && json.rows.length > 0,
  )
}

const FLIP = (name: string) => `b = bytearray(files[${name}]); b[5] ^= 1; files[${name}] = bytes(b)`
const FIRST = (pattern: string) => `next(n for n in files if n.startswith(${JSON.stringify(pattern)}))`

await t.test(
  'a stranger with the pack and the verifier key reaches the right verdict, on an honest log and on forged ones',
  { skip: withoutPython },
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const none = await gateway.enroll('=none', []).catch(() => gateway.enroll('none', []))
    await called(gateway, bot, 3)
    for (const name of ['files', 'notes']) {
      const server = { name, endpoint_url: `https://${name}.example/mcp` }
      t.equal((await gateway.admin('POST', '/v1/admin/mcp-resources', server)).status, 201)
    }
    const early = (await gateway.call(bot, 'GET', '/v1/audit/checkpoint')).text
    await called(gateway, bot, 150)
    await called(gateway, none, 2)
    const key = (await gateway.call(bot, 'GET', '/v1/audit/key')).text.trim()
    const answer = await gateway.admin('GET', '/v1/admin/audit/evidence')
    t.equal(answer.status, 200)
    t.equal(answer.headers['content-type'], 'application/zip')
    const directory = await scratch(t)
    mkdirSync(directory, { recursive: true })
    const pack = join(directory, 'pack.zip')
    writeFileSync(pack, answer.bytes)
    const honest = await verify(pack, '--key', key)
    t.match(honest, { code: 0, last: 'VERIFIED' })
    t.match(honest.out, /disagree 0, not recomputable 0/)
    t.match(await verify(pack), { code: 0, last: 'CONSISTENT, NOT WITNESSED' })
    const kept = join(directory, 'kept.txt')
    writeFileSync(kept, early)
    t.match(await verify(pack, '--checkpoint', kept), { code: 0, last: 'VERIFIED' })
    const listed = spawnSync('python3', ['-m', 'zipfile', '-l', pack], { encoding: 'utf8' }).stdout
    for (const name of [
      ...[
        'rows.ndjson',
        'rows.csv',
        'sets-start.json',
        'sets-end.json',
        'grants.ndjson',
        'refusals.csv',
        'tools.json',
      ],
      ...[
        'sign-ins.ndjson',
        'inventory.json',
        'key.txt',
        'verify.py',
        'SHA256SUMS',
        'README.md',
        'checkpoints/',
        'tiles/0/000',
      ],
    ])
      t.match(listed, name)
    const unzipped = (name: string): Buffer =>
      spawnSync('python3', [
        '-c',
        'import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read(sys.argv[2]))',
        pack,
        name,
      ]).stdout
    t.match(JSON.parse(unzipped('tools.json').toString()), [
      { action: 'mcp_resource.created', detail: { name: 'files' } },
      { action: 'mcp_resource.created', detail: { name: 'notes' } },
    ])
    const packed = join(directory, 'verify.mjs')
    writeFileSync(packed, unzipped('verify.mjs'))
    const own = spawnSync(process.execPath, [packed, pack, '--key', key], {
      encoding: 'utf8',
      cwd: directory,
    })
    t.match(
      own,
      { status: 0, stdout: /VERIFIED, SEEN by nobody outside\n$/ },
      'the verifier that comes with it',
    )
    const forgeries: readonly (readonly [string, string, number])[] = [
      [
        'a row changed',
        `files["rows.ndjson"] = files["rows.ndjson"].replace(b"gpt-4o-mini", b"gpt-4o-maxi"); resum()`,
        2,
      ],
      ['a digest that is another', `files["rows.csv"] += b"x"`, 2],
      ['a file more', `files["more.txt"] = b"x"`, 2],
      [
        'a row gone',
        `l = files["rows.ndjson"].splitlines(True); files["rows.ndjson"] = b"".join(l[:9] + l[10:]); resum()`,
        2,
      ],
      [
        'the end cut off',
        `l = files["rows.ndjson"].splitlines(True); files["rows.ndjson"] = b"".join(l[:-2]); resum()`,
        4,
      ],
      ['a tile changed', `n = ${FIRST('tiles/0/')}; ${FLIP('n')}; resum()`, 3],
      ['an upper tile changed', `n = ${FIRST('tiles/1/')}; ${FLIP('n')}; resum()`, 3],
      ['a tile gone', `del files[${FIRST('tiles/0/')}]; resum()`, 3],
      [
        'another root',
        `n = ${FIRST('checkpoints/')}; t = files[n].decode().split("\\n"); t[2] = "A" * 43 + "="; files[n] = "\\n".join(t).encode(); resum()`,
        3,
      ],
      ['no checkpoint', `[files.pop(n) for n in list(files) if n.startswith("checkpoints/")]; resum()`, 3],
      ['a row more', `l = files["rows.ndjson"].splitlines(True); files["rows.ndjson"] += l[-1]; resum()`, 2],
      [
        'a refusal that is not in the table of refusals',
        `l = files["refusals.csv"].splitlines(True); files["refusals.csv"] = b"".join(l[:-1]); resum()`,
        2,
      ],
      [
        'a table with another cell',
        `files["rows.csv"] = files["rows.csv"].replace(b"denied", b"allowed", 1); resum()`,
        2,
      ],
      ['a grant that is not among the grants', `files["grants.ndjson"] = b""; resum()`, 2],
      [
        'a set that nobody was given',
        `files["sets-end.json"] = files["sets-end.json"].replace(b"llm.chat", b"llm.more"); resum()`,
        2,
      ],
      ['a set before the first row', `files["sets-start.json"] = files["sets-end.json"]; resum()`, 2],
      ['tools that nobody recorded', `files["tools.json"] = b"[{}]"; resum()`, 2],
      ['no keys', `del files["key.txt"]; resum()`, 3],
      ['no digests', `del files["SHA256SUMS"]`, 2],
      ['no rows', `del files["rows.ndjson"]; resum()`, 9],
      [
        'fewer rows than there are',
        `files["inventory.json"] = re.sub(rb'"rows": [0-9]+', b'"rows": 9', files["inventory.json"]); resum()`,
        3,
      ],
      [
        'another place in the log',
        `files["inventory.json"] = files["inventory.json"].replace(b'"first_index": 0', b'"first_index": 256'); resum()`,
        3,
      ],
      [
        'another log',
        `files["inventory.json"] = files["inventory.json"].replace(b'/audit"', b'/other"'); resum()`,
        3,
      ],
      [
        'an older form',
        `files["inventory.json"] = files["inventory.json"].replace(b"evidence/1", b"evidence/0"); resum()`,
        9,
      ],
      ['no inventory', `del files["inventory.json"]; resum()`, 9],
      ['no zip', `files.clear()`, 9],
    ]
    // Of which engine a pack is does not change what is said of a forged one.
    const tried = ENGINE === 'postgres' ? [] : forgeries
    for (const [index, [name, change, code]] of tried.entries()) {
      const forged = join(directory, `forged-${index}.zip`)
      changed(pack, forged, change)
      t.equal((await verify(forged, '--key', key)).code, code, name)
    }
    const [row] = (await gateway.rows({ order: 'asc', limit: 1000 })).filter(
      ({ status }) => status === 'denied',
    )
    const since = String(row?.recorded_at)
    const part = await gateway.admin('GET', `/v1/admin/audit/evidence?since=${encodeURIComponent(since)}`)
    writeFileSync(pack, part.bytes)
    const of = await verify(pack, '--key', key)
    t.match(of, { code: 0, last: 'VERIFIED' })
    t.match(of.out, /not proven: decisions/)
    const old = await verify(pack, '--checkpoint', kept)
    t.match(
      old,
      { code: 0, last: 'CONSISTENT, NOT WITNESSED' },
      'what cannot be compared vouches for nothing',
    )
    t.match(old.out, /not compared: the kept checkpoint of \d+ rows/)
    await called(gateway, bot, 1)
    writeFileSync(kept, (await gateway.call(bot, 'GET', '/v1/audit/checkpoint')).text)
    t.match(await verify(pack, '--checkpoint', kept), { code: 4 }, 'a pack that ends before what was kept')
    t.equal((await verify(pack, '--key', signer('sallyport.local/acme/audit').vkey)).code, 3, 'another key')

    // A day later.
    await gateway.close(0)
    const { dataDir, databaseUrl } = gateway.settings
    const settings = { MCP_PROXY_DATA_DIR: dataDir, MCP_PROXY_DATABASE_URL: databaseUrl }
    const later = await testGateway(t, { settings, clock: () => Date.now() + 90_000_000 })
    const said = await eventually(
      () => later.rows({ action: 'ledger.state' }),
      (rows) => rows.length > 0,
      // On PostgreSQL it is the second look that finds out who leads.
      25_000,
    )
    const { leaf } = said[0]?.detail ?? {}
    t.equal(leaf, 256)
    await eventually(
      () => later.admin('GET', '/v1/admin/log'),
      ({ json }) => json.unsealed === 0,
    )
    const rest = await later.admin('GET', `/v1/admin/audit/evidence?since=${encodeURIComponent(since)}`)
    writeFileSync(pack, rest.bytes)
    const whole = await verify(pack, '--key', key)
    t.match(whole, { code: 0, last: 'VERIFIED' })
    t.match(whole.out, /recomputed [1-9]\d*, disagree 0, not recomputable 0/)
    t.match(whole.out, /leaves 256 to/)
    t.notMatch(whole.out, /not proven/)
    const START = `files["state-start.json"]`
    const edits = {
      'another state': `${START} = ${START}.replace(b"llm.chat", b"llm.more"); resum()`,
      'no state': `del ${START}; resum()`,
      'a state of another form': `${START} += b" "; resum()`,
      'a state that is none': `${START} = b"[]"; resum()`,
      'another end': `files["state-end.json"] = ${START}; resum()`,
      'other sets': `files["sets-start.json"] = files["sets-start.json"].replace(b"llm.chat", b"llm.more"); resum()`,
    }
    for (const [name, edit] of Object.entries(edits)) {
      const forged = join(directory, 'forged-state.zip')
      changed(pack, forged, edit)
      t.equal((await verify(forged, '--key', key)).code, 2, name)
    }
  },
)

await t.test(
  'a pack is for auditors alone; a window that is reversed, or holds nothing, is said so',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    await called(gateway, bot, 1)
    t.equal((await gateway.call(bot, 'GET', '/v1/admin/audit/evidence')).status, 403)
    const reversed = await gateway.admin(
      'GET',
      '/v1/admin/audit/evidence?since=2026-02-01T00:00:00Z&until=2026-01-01T00:00:00Z',
    )
    t.equal(reversed.status, 422)
    const nothing = await gateway.admin('GET', '/v1/admin/audit/evidence?until=2001-01-01T00:00:00Z')
    t.equal(nothing.status, 200)
    const reviewed = (body: object) => gateway.admin('POST', '/v1/admin/audit/reviewed', body)
    const period = { since: '2026-01-01T00:00:00Z', until: '2026-04-01T00:00:00Z' }
    t.equal((await reviewed({ ...period, checkpoint: 1_000_000 })).status, 404)
    const size = Number((await gateway.call(bot, 'GET', '/v1/audit/checkpoint')).text.split('\n')[1])
    t.equal((await reviewed({ ...period, checkpoint: size, note: 'Q1' })).status, 204)
    t.match(
      (await gateway.rows()).filter(({ action }) => action === 'audit.reviewed'),
      [{ principal_id: 'admin', detail: { checkpoint: { size }, note: 'Q1', via: 'secret' } }],
    )
  },
)
