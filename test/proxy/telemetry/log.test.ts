import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import t from 'tap'
import { createLogs } from '../../../proxy/telemetry/log.ts'

const LOG = join(import.meta.dirname, '../../../proxy/telemetry/log.ts')

const ENDS = {
  'of itself': [1000, ''],
  'in order': [1000, 'await flush(); process.exit(3)'],
  // Fewer than one write takes: one that is under way is the system's to finish.
  'by its own decision': [100, 'process.exit(3)'],
  'by an error': [100, "throw new Error('nobody catches this')"],
} as const

for (const [how, [count, end]] of Object.entries(ENDS)) {
  await t.test(`no line that was held back is lost where the process ends ${how}`, async (t) => {
    const code = `import { createLogs } from ${JSON.stringify(LOG)}
      const { requestLog, flush } = createLogs('info')
      for (let n = 0; n < ${count}; n += 1) requestLog({ n })
      ${end}`
    const child = spawn(process.execPath, ['--input-type=module', '--eval', code])
    const written = await text(child.stdout)
    const lines = written
      .trimEnd()
      .split('\n')
      .map((line) => (JSON.parse(line) as { n: number }).n)
    t.same(
      lines,
      Array.from({ length: count }, (_, n) => n),
    )
  })
}

await t.test('a refused request has its line at level warn too, and no other has', async (t) => {
  const written = (level: string): unknown[] => {
    const lines: string[] = []
    const stream = { write: (line: string) => void lines.push(line) }
    const { requestLog } = createLogs(level, stream)
    requestLog({ reqId: 'req_1', status: 200 })
    requestLog({ reqId: 'req_2', status: 401, reason: 'certificate_required' })
    return lines.map((line) => {
      const { level: of, reqId } = JSON.parse(line)
      return [of, reqId]
    })
  }
  t.strictSame(written('info'), [
    [30, 'req_1'],
    [30, 'req_2'],
  ])
  t.strictSame(written('warn'), [[40, 'req_2']])
  t.strictSame(written('error'), [])
})

await t.test('no header with a credential is written, of a caller’s vendor key either', async (t) => {
  const lines: string[] = []
  const { log } = createLogs('info', { write: (line: string) => void lines.push(line) })
  const names = [
    'authorization',
    'dpop',
    'cookie',
    'x-admin-secret',
    'x-api-key',
    'sallyport-authorization',
    'sallyport-x-api-key',
  ]
  for (const name of names) log.info({ [name]: `own ${name}`, asked: { [name]: `own ${name}` } }, 'asked')
  t.equal(lines.length, names.length)
  for (const line of lines) t.notMatch(line, /"own /)
})
