import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t from 'tap'
import { MAX_WAITING_BYTES } from '../../../proxy/telemetry/log-output.ts'

const LOG = join(import.meta.dirname, '../../../proxy/telemetry/log.ts')

/** Runs a program that has opened its log and is told its parent's words. It sends `losses` to each. */
function running(stdio: 'pipe' | number, program: string): ChildProcess {
  const code = `import { createLogs } from ${JSON.stringify(LOG)}
    const { log, requestLog, losses, flush } = createLogs('info')
    const rss = () => process.memoryUsage.rss()
    ${program}`
  return spawn(process.execPath, ['--input-type=module', '--max-old-space-size=64', '--eval', code], {
    stdio: ['ignore', stdio, 'inherit', 'ipc'],
  })
}

await t.test(
  'H16: what a reader that has stopped does not take has a bound; the rest is counted, and said once it reads again',
  async (t) => {
    const line = 'x'.repeat(1_000)
    const child = running(
      'pipe',
      `
      const before = rss()
      for (let round = 0; round < 200; round += 1) {
        for (let n = 0; n < 1_000; n += 1) requestLog({ n: round * 1_000 + n, line: '${line}' })
        await new Promise((resolve) => setImmediate(resolve))
      }
      process.send({ lost: losses.lost, isLosing: losses.isLosing, grown: rss() - before })
      await new Promise((resolve) => process.once('message', resolve))
      const look = setInterval(() => {
        if (losses.isLosing) return
        clearInterval(look)
        requestLog({ n: 'after' })
        flush().then(() => process.exit(0))
      }, 10)`,
    )
    const [{ lost, isLosing, grown }] = await once(child, 'message')
    t.equal(isLosing, true)
    const kept = 200_000 - lost
    t.ok(kept * 1_000 < MAX_WAITING_BYTES + (1 << 20), `${kept} of 200,000 wait`)
    t.ok(kept * 1_000 > MAX_WAITING_BYTES / 2, 'as many as there is room for')
    t.ok(grown < 100 << 20, `it has grown by ${grown >> 20} MiB`)
    child.send('read')
    if (!child.stdout) throw new Error('it has no standard output')
    const read: { n?: number | string; lost_lines?: number; level: number }[] = []
    for await (const text of createInterface({ input: child.stdout })) read.push(JSON.parse(text))
    const told = read.filter(({ lost_lines: said }) => said !== undefined)
    t.match(told, [{ level: 40, lost_lines: lost }])
    t.equal(told.length, 1)
    const numbers = read.flatMap(({ n }) => (n === undefined ? [] : [n]))
    t.same(
      numbers,
      [...numbers.keys()].slice(0, -1).concat('after' as never),
      'the first ones, whole and in order',
    )
  },
)
