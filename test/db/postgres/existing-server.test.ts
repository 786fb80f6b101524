import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { cluster } from '../../support/db/postgres/cluster.ts'
import { raw } from '../../support/db/postgres/replica.ts'
import { eventually } from '../../support/settled.ts'

const TEST = join(import.meta.dirname, '../settings.test.ts')

t.test(
  'TEST_DATABASE_URL: tests make their databases on a server that is there, and leave none',
  async (t) => {
    const url = (await cluster()).url('postgres')
    const databases = async () => {
      const { rows } = await raw(
        url,
        `select datname from pg_database where datname like 'sallyport\\_test\\_%'`,
      )
      return rows.length
    }
    const env = { PATH: process.env.PATH ?? '', TEST_ENGINE: 'postgres', TEST_DATABASE_URL: url }
    const child = promisify(execFile)(process.execPath, [TEST], { env })
    t.ok(await eventually(databases, (count) => count > 0), 'there')
    t.match((await child).stdout, /pass: [1-9]/)
    t.equal(await eventually(databases, (count) => count === 0), 0)
  },
)
