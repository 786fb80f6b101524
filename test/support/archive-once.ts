// Archives what it is told to, in a process of its own, which may be killed.
import { pino } from 'pino'
import { databaseLocation } from '../../db/engine.ts'
import { archiveBoundary } from '../../db/ledger/tree/segments.ts'
import { archiveRows, removeArchived } from '../../proxy/archive/archive.ts'
import { openLog } from './archive.ts'
import { started } from './db/history.ts'

const [url = '', folder = '', last = ''] = process.argv.slice(2)
const after: (() => unknown)[] = []
const log = await openLog({ teardown: (work: () => unknown) => void after.push(work) } as never, url)
const given = {
  ...log,
  folder,
  location: databaseLocation(url),
  authority: { rootPem: '', intermediatePem: '', rotation: null },
  anchors: () => [],
  log: pino({ level: 'silent' }),
}
// On PostgreSQL it writes to a stream of its own.
await log.ledger.commit({ entries: [started] })
const { size } = await archiveBoundary(log.database.kysely)
if (size > Number(last)) await removeArchived(given)
else await archiveRows(given, Number(last), new AbortController().signal)
for (const work of after) await work()
