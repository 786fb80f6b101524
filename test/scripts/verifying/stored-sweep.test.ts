import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { Client } from 'pg'
import t from 'tap'
import { openDatabase } from '../../../db/engine.ts'
import { databaseUrl, ENGINE } from '../../support/db/engine.ts'
import { HISTORY, honestDatabase } from '../../support/db/ledger-with-tables.ts'
import { server } from '../../support/db/postgres/server.ts'
import { type Ran, sallyport } from '../../support/run.ts'
import { type Code, chooser } from '../../support/sweep/edits/edit.ts'
import { asking } from '../../support/sweep/judging/asking.ts'
import { judges } from '../../support/sweep/judging/judges.ts'
import { copyOf, sealedDatabase, sealInPortions } from '../../support/sweep/stored/database.ts'
import { DATABASE_EDITS } from '../../support/sweep/stored/database-edits.ts'
import { POSTGRES_EDITS } from '../../support/sweep/stored/postgres-edits.ts'

// The same seed makes the same edits: SWEEP_SEED=… node test/scripts/verifying/stored-sweep.test.ts. SWEEP_ROUNDS says how often.
const SEED = Number(process.env.SWEEP_SEED ?? Date.now() % 2 ** 31)
const ROUNDS = Number(process.env.SWEEP_ROUNDS ?? 1)
/** How often a process is killed while it seals. */
const KILLS = Number(process.env.SWEEP_KILLS ?? 5)

t.setTimeout(7_200_000)
const { both, ours } = judges(t)
const directory = t.testdir()
t.comment(`SWEEP_SEED=${SEED}`)

const isRight = ({ code, err }: Ran, right: Code | 'any'): boolean =>
  (right === 'any' ? [0, 2, 3, 4, 5, 9].includes(code ?? 1) : code === right) &&
  !/\n\s+at |is not a function/.test(err)

await t.test(
  'every edit of a database file is found, with the right exit code',
  { skip: ENGINE === 'sqlite' ? false : 'it edits a file' },
  async (t) => {
    const log = await sealedDatabase(directory)
    const kept = join(directory, 'kept')
    writeFileSync(kept, log.kept.map(({ note }) => note).join('\n'))
    writeFileSync(join(directory, 'keys'), log.keys.join('\n'))
    const given = ['--key', join(directory, 'keys'), '--checkpoint', kept, '--witness', log.witness]
    mkdirSync(join(directory, 'copy'))
    let cases = 0
    for (let round = 0; round < ROUNDS; round += 1) {
      for (const [index, edit] of DATABASE_EDITS.entries()) {
        const file = await copyOf(log, join(directory, 'copy'))
        const right = edit.work(file, log, chooser(SEED + round * DATABASE_EDITS.length + index))
        if (!right) continue
        const isHeld = (SEED + round + index) % 2 === 0
        const said = await ours([file, ...(isHeld ? given : [])])
        cases += 1
        const [code, how] = isHeld ? [right.held, 'held against what was kept'] : [right.alone, 'by itself']
        if (!isRight(said, code)) t.fail(`${edit.name}, ${how}: ${said.code}, and ${code} is right`, { said })
      }
    }
    t.comment(`${cases} edits of ${DATABASE_EDITS.length} kinds`)
    t.ok(cases > 100)
  },
)

await t.test(
  'every edit of a PostgreSQL database is found, with the right exit code',
  { skip: ENGINE === 'postgres' ? false : 'it edits a PostgreSQL database' },
  async (t) => {
    const base = await databaseUrl(join(directory, 'base'))
    const database = await openDatabase(base)
    await sealInPortions(database, HISTORY)
    await database.close()
    for (const { sql, code } of POSTGRES_EDITS) {
      const url = await (await server()).fresh(base)
      const client = new Client(url)
      await client.connect()
      const isOfRows = /^(update|delete from|insert into) audit_rows/.test(sql)
      if (isOfRows) await client.query('alter table audit_rows disable trigger user')
      await client.query(sql)
      for (const name of isOfRows ? ['update', 'delete', 'truncate', 'insert'] : [])
        await client.query(`alter table audit_rows enable always trigger audit_rows_${name}`)
      await client.end()
      const said = await ours([url])
      t.ok(isRight(said, code), `${sql.slice(0, 100)}: ${said.code}, and ${code} is right`, {
        said: said.out + said.err,
      })
    }
  },
)

interface Told {
  readonly key: string
  readonly note: string
}

/** Lets a process serve and seal, and kills it once it has told of so many checkpoints. */
async function killed(url: string, begin: boolean, after: number): Promise<readonly Told[]> {
  const program = join(import.meta.dirname, '../../support/sweep/stored/live-until-killed.ts')
  const child: ChildProcess = spawn(process.execPath, [program, url, ...(begin ? ['begin'] : [])], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const closed = once(child, 'close')
  const told: Told[] = []
  if (child.stdout === null) throw new Error('it has no output')
  for await (const line of createInterface({ input: child.stdout })) {
    told.push(JSON.parse(line))
    if (told.length === after) child.kill('SIGKILL')
  }
  await closed
  return told
}

await t.test(
  'a ledger whose process was killed while it sealed raises no alarm, by both verifiers',
  async (t) => {
    const place = join(directory, 'killed')
    mkdirSync(place)
    const url = ENGINE === 'sqlite' ? `sqlite:${await honestDatabase(place)}` : await databaseUrl(place)
    const ask = asking(place, both)
    const told: Told[] = []
    for (let times = 0; times < KILLS; times += 1) {
      told.push(...(await killed(url, ENGINE === 'postgres' && times === 0, 1 + ((times * 3) % 7))))
      const kept = told.map(({ note }) => note).join('\n')
      writeFileSync(join(place, 'told'), kept)
      const key = told.at(-1)?.key ?? ''
      const said = await ours([url, '--key', key, '--checkpoint', join(place, 'told')])
      t.match(
        said,
        { code: 0, out: /VERIFIED, KEPT outside as a checkpoint of \d+ rows\n$/ },
        `${said.out}${said.err}`,
      )
      const exported = await sallyport(['export-audit', url])
      t.equal(await ask({ file: exported.out, keys: [key], kept, code: 0 }), null)
    }
    t.ok(told.length >= KILLS, `${told.length} checkpoints`)
  },
)
