import { spawn, spawnSync } from 'node:child_process'
import { text } from 'node:stream/consumers'

/** A user id that nobody here has. */
export const ANOTHER_USER = 54_321

/** Tells whether this process may start others under another user id, which can read the checkout and run its Node. */
export const mayBeOthers = process.getuid?.() === 0 && canRead(import.meta.filename)

function canRead(file: string): boolean {
  const program = 'require("node:fs").readFileSync(process.argv[1])'
  const user = { uid: ANOTHER_USER, gid: ANOTHER_USER }
  return spawnSync(process.execPath, ['-e', program, file], user).status === 0
}

const PROGRAM = `
const { request } = require('node:http')
const [socketPath, method, path, body] = process.argv.slice(1)
request({ socketPath, method, path }, (res) => res.resume().on('end', () => console.log(res.statusCode))).end(body)
`

/**
 * Asks over a control socket as another user of this machine, who must be able to run this process's own program.
 * Resolves to the status of the answer.
 */
export async function askAsAnotherUser(
  socketPath: string,
  method: string,
  path: string,
  body: unknown,
): Promise<number> {
  const args = ['-e', PROGRAM, socketPath, method, path, JSON.stringify(body)]
  const child = spawn(process.execPath, args, {
    stdio: ['ignore', 'pipe', 'inherit'],
    uid: ANOTHER_USER,
    gid: ANOTHER_USER,
  })
  return Number(await text(child.stdout))
}
