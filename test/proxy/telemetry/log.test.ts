import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import t from 'tap'

const LOG = join(import.meta.dirname, '../../../proxy/telemetry/log.ts')

const ENDS = {
  'of itself': '',
  'by its own decision': 'process.exit(3)',
  'by an error': "throw new Error('nobody catches this')",
}

for (const [how, end] of Object.entries(ENDS)) {
  await t.test(`no line that was held back is lost where the process ends ${how}`, async (t) => {
    const code = `import { createLogs } from ${JSON.stringify(LOG)}
      const { requestLog } = createLogs('info')
      for (let n = 0; n < 1000; n += 1) requestLog.info({ n }, 'request')
      ${end}`
    const child = spawn(process.execPath, ['--input-type=module', '--eval', code])
    const written = await text(child.stdout)
    const lines = written
      .trimEnd()
      .split('\n')
      .map((line) => (JSON.parse(line) as { n: number }).n)
    t.same(
      lines,
      Array.from({ length: 1000 }, (_, n) => n),
    )
  })
}
