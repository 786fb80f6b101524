import { readSettings } from '../../../proxy/boot/settings.ts'
import { withControl } from '../../../scripts/admin/control.ts'
import { firstAnswer, JSON_TYPE, lanes, linger, openTls, requestOf, someAddress, write } from './sockets.ts'
import { type Attack, oneOf } from './target.ts'

/** The tools of hostile MCP servers, whose answers come in tiny pieces, without an end, or of many objects. */
export const answers: Attack = (siege) =>
  lanes(siege, 6, 1_500, async () => {
    const socket = await openTls(siege, siege.target.rogue, someAddress(siege.random))
    const name = oneOf(siege.random, [
      'h-drip',
      'h-endless',
      'h-heavy',
      'h-arrays',
      'h-big',
      'h-lines',
      'h-events',
    ])
    await write(socket, callOf(`${name}.tool`, '{}'))
    if (siege.random() < 0.3) socket.pause()
    await linger(socket, 6_000)
  })

/** Arguments within all limits that take long to judge. */
export const toolArguments: Attack = (siege) => {
  const heavy = [
    `{"list":[${'{"a":"b"},'.repeat(20_000)}0]}`,
    `{"text":${JSON.stringify('a'.repeat(1_000_000))}}`,
    `{"list":[${Array.from({ length: 50_000 }, (_, i) => i).join()}]}`,
  ] as const
  return lanes(siege, 2, 600, async () => {
    const socket = await openTls(siege, siege.target.rogue, someAddress(siege.random))
    await write(socket, callOf('h-schema.tool', oneOf(siege.random, heavy)))
    await firstAnswer(socket, 5_000)
    socket.destroy()
  })
}

/** A6: definitions that are costly to read, read again as an operator's refresh does. */
export const schemas: Attack = async (siege) => {
  const { env, directory, hostile } = siege.target
  const settings = readSettings(env, directory)
  await lanes(siege, 1, 2_000, async () => {
    const path = `/v1/admin/mcp-resources/${hostile['h-schema']}/refresh`
    await withControl(settings, (call) => call('POST', path))
  })
}

function callOf(name: string, args: string): string {
  const message = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"${name}","arguments":${args}}}`
  const headers = [
    JSON_TYPE,
    'accept: application/json, text/event-stream',
    'mcp-protocol-version: 2025-11-25',
  ]
  return requestOf('POST', '/v1/mcp', headers, message)
}
