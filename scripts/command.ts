import { refuseUnsafeRuntime } from '../proxy/runtime-check.ts'

/**
 * Runs a verb of the command line: prints `help` for --help, and an error as one sentence with exit status 1.
 * The verb's own modules are imported by `run`, after the runtime was found fit.
 */
export async function command(help: string, run: (args: readonly string[]) => Promise<void>): Promise<void> {
  const args = process.argv.slice(2)
  if (args.includes('--help') || args.includes('-h')) {
    process.stdout.write(help)
    return
  }
  try {
    refuseUnsafeRuntime(process)
    await run(args)
  } catch (error) {
    process.stderr.write(`sallyport: ${error instanceof Error ? error.message : String(error)}\n`)
    process.exitCode = 1
  }
}
