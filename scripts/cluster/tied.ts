import { spawn } from 'node:child_process'
import { text } from 'node:stream/consumers'
/**
 * Aborts at Ctrl-C, SIGTERM, or when nobody reads on. `why`: the reason; if nobody reads, it is standard
 * output's error.
 */
export function interruption(why: string): AbortSignal {
  const controller = new AbortController()
  const abort = (): void => controller.abort(new Error(why))
  process.once('SIGINT', abort)
  process.once('SIGTERM', abort)
  process.stdout.on('error', (error) => controller.abort(error))
  return controller.signal
}

export interface TiedProcess {
  /** The program's own, not that of the shell which watches over it. */
  readonly pid: number
  /** The last output of both kinds: 64 Ki characters at most. */
  readonly output: () => string
  /** Resolves when it has ended and its outputs are read. `code`: 128 and the signal if one ended it. */
  readonly ended: Promise<{ readonly code: number | null; readonly output: string }>
  /** Does nothing if it has ended. */
  readonly signal: (signal: NodeJS.Signals) => void
}

export interface TiedOptions {
  readonly cwd?: string
  /** The whole environment: nothing of this process's is passed on. */
  readonly env?: Readonly<NodeJS.ProcessEnv>
  readonly uid?: number
  readonly gid?: number
  /** The signal that ends it if this process has ended. Default: SIGTERM. */
  readonly last?: 'TERM' | 'INT'
  /** Told of each piece that it writes. */
  readonly onOutput?: (piece: string) => void
}

/** Characters. */
const MAX_OUTPUT_CHARACTERS = 65_536

// The end of the pipe that is ours closes with us, SIGKILL included. `read` is the shell's own, so that the
// watch ends with its subshell.
const WATCH = `exec 4<&0 0</dev/null
"$@" 3>&- 4<&- & program=$!
echo $program >&3; exec 3>&-
(read -r _ <&4; kill -$0 $program) 2>/dev/null & watch=$!
exec 4<&-
trap : TERM INT
wait $program; code=$?
kill $watch 2>/dev/null
exit $code`

/**
 * Starts a program in a session of its own: Ctrl-C reaches this process alone, which ends them in order.
 * Rejects if there is no such program.
 */
export async function startTied(
  command: string,
  args: readonly string[],
  { onOutput = () => {}, last = 'TERM', ...options }: TiedOptions = {},
): Promise<TiedProcess> {
  const child = spawn('/bin/sh', ['-c', WATCH, last, command, ...args], {
    ...options,
    env: { ...options.env },
    detached: true,
    stdio: ['pipe', 'pipe', 'pipe', 'pipe'],
  })
  let output = ''
  const take = (piece: Buffer): void => {
    output = (output + piece.toString()).slice(-MAX_OUTPUT_CHARACTERS)
    onOutput(piece.toString())
  }
  child.stdout?.on('data', take)
  child.stderr?.on('data', take)
  // Closed by the shell's end: output that nobody reads any more is no fault.
  child.stdin?.on('error', () => {})
  const ended = new Promise<{ code: number | null; output: string }>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code) => resolve({ code, output }))
  })
  // Proven: `stdio` asks for a pipe there.
  const pid = Number(await text(child.stdio[3] as NodeJS.ReadableStream))
  let over = false
  void ended.then(() => {
    over = true
  })
  return {
    pid,
    output: () => output,
    ended,
    signal: (signal) => {
      if (!over && isAlive(pid)) process.kill(pid, signal)
    },
  }
}

/** True if a process is there. Does NOT tell whether it is the same that once had this id. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}
