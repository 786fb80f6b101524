// A process that runs test files in turn, as test/support/in-turn/workers.ts tells it: half of what a small test costs is
// starting Node and loading the gateway. Each file is a test within tap's own, with its time, its teardown and its
// failures.
import { registerHooks } from 'node:module'
import { Writable } from 'node:stream'
import { pathToFileURL } from 'node:url'
import { writeCost } from './costs.ts'
import { runFile } from './domain.ts'
import { standFor, testOf } from './file-test.ts'
import type { FileToRun, WorkerReport } from './workers.ts'

const TAP = new URL('tap.ts', import.meta.url)
const DOMAIN = new URL('domain.ts', import.meta.url)

registerHooks({
  resolve(specifier, context, next) {
    if (specifier === 'async-hook-domain') return next(DOMAIN.href, context)
    if (specifier !== 'tap' || context.parentURL?.includes('/node_modules/')) return next(specifier, context)
    if (context.parentURL === import.meta.url) return next(specifier, context)
    // It is loaded once, and would speak for its first file for ever.
    if (testOf(context.parentURL) === null) throw new Error(`${context.parentURL} imports tap and is no test`)
    return next(`${TAP.href}?${encodeURIComponent(context.parentURL ?? '')}`, context)
  },
})

// Its packages go through the hook.
const { default: t } = await import('tap')

// Nothing to standard output: what a file says is sent when it has ended.
t.pipe(new Writable({ write: (_chunk, _encoding, done) => done() }))
t.setTimeout(0)
/** The end of the time of the file that runs now, or ran last: tap says of its innermost test alone that it took too long. */
let until = Number.POSITIVE_INFINITY
// A result of tap's own test is an error that came when its file had ended. One that took too long goes on, and its
// process does not.
t.on('res', (result) => {
  if (performance.now() >= until) return
  const { message: late } = result as { message: string }
  console.error(late)
  report({ late }, () => process.exit(1))
})

process.on('message', (message: FileToRun) => void run(message))
// tap lets go of it.
process.channel?.ref()

async function run({ file, timeout }: FileToRun): Promise<void> {
  const since = performance.now()
  const url = pathToFileURL(file).href
  const ended = t.test(file, { buffered: true, timeout }, (t) =>
    runFile(async () => {
      standFor(url, t)
      await import(url)
    }),
  )
  // Timers are of whole milliseconds.
  until = since + timeout - 1
  await ended
  const timedOut = performance.now() >= until
  if (!timedOut) until = Number.POSITIVE_INFINITY
  // What it has begun and not awaited fails it, as it would at the end of its process.
  await new Promise((resolve) => setTimeout(resolve, 1))
  writeCost(file)
  const { subtest } = ended
  if (subtest === null) throw new Error(`${file} was not run`)
  report({
    ok: subtest.passing(),
    timedOut,
    tap: subtest.output.replaceAll(/^ {4}/gm, ''),
    ms: performance.now() - since,
    rss: process.memoryUsage.rss(),
  })
}

function report(message: WorkerReport, sent?: () => void): void {
  process.send?.(message, undefined, {}, sent)
}
