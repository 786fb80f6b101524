import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { errorCode } from '../../plugins/operator-files/secret-file.ts'
import { interruption } from '../interruption.ts'
import { showAudit } from './audit.ts'
import { playCalls } from './calls.ts'
import { startDemoGateway } from './gateway.ts'
import { curlLines } from './lines.ts'
import { playMcp } from './mcp.ts'
import { startMockProvider } from './provider.ts'
import { playRehearsal } from './rehearsal.ts'

interface DemoOptions {
  /** True: the gateway stays until SIGINT or SIGTERM. */
  readonly stay: boolean
  /** The port of the gateway. Null: 9443, or any other while that is taken. */
  readonly port: number | null
}

/**
 * Plays the whole demo on standard output. Rejects with one sentence at the first step that does not do what
 * it should. Whatever happens, the gateway and the provider are stopped and the scratch directory is removed
 * before it settles.
 */
export async function runDemo(wanted: DemoOptions): Promise<void> {
  const interrupted = interruption('the demo was stopped before its end')
  await using stage = new AsyncDisposableStack()
  try {
    await play(wanted, stage, interrupted)
  } catch (error) {
    // Ctrl-C reaches the gateway too, so that a call under way fails for that reason.
    const why: unknown = interrupted.aborted ? interrupted.reason : error
    // Whoever has read enough, as head does, wants to hear no more.
    if (errorCode(why) !== 'EPIPE') throw why
  }
}

async function play({ stay, port }: DemoOptions, stage: AsyncDisposableStack, interrupted: AbortSignal) {
  // Each step says how it went, so an interrupted demo ends at the next line, with everything it started
  // known here.
  const say = (line: string): void => {
    interrupted.throwIfAborted()
    process.stdout.write(`${line}\n`)
  }
  const started = performance.now()
  say('Sallyport demo: the main job, on this machine alone, with no key and no account.\n')

  const directory = await mkdtemp(join(tmpdir(), 'sallyport-demo-'))
  stage.defer(() => rm(directory, { recursive: true, force: true }))
  const provider = await startMockProvider()
  stage.defer(provider.stop)
  say(`  provider  ${provider.url}, a mock (aimock) that answers to one key, which the gateway has`)

  const gateway = await startDemoGateway({ directory, port, provider })
  stage.defer(gateway.stop)
  const seconds = ((performance.now() - started) / 1000).toFixed(1)
  say(`  gateway   ${gateway.url}, with a CA and an audit ledger of its own, made in ${seconds} s`)

  const writer = await playCalls(gateway, provider, stage, say)
  const client = await playMcp(gateway, writer, stage, say)
  await playRehearsal(gateway, { client, agent: writer }, say)
  await showAudit(gateway, say)
  if (!stay) return
  say(curlLines(gateway))
  await Promise.race([once(interrupted, 'abort'), gateway.ended.then(complain)])
}

function complain(why: string): never {
  throw new Error(why)
}
