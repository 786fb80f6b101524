import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { type Kind, mcpThrough, PEERS, peerAt } from '../support/clients/mcp-through.ts'
import { type Json, scratch } from '../support/gateway.ts'
import { SAMPLED } from '../support/mcp/clients.ts'
import { startEverything, startFilesystem, startMemory } from '../support/mcp/servers.ts'

const HELD = ['mcp.tools.list', 'everything.use', 'memory.use', 'files.use']

const directory = await scratch(t)
await writeFile(join(directory, 'note.txt'), 'A note, in the directory that may be read.')
const [everything, memory, files] = await Promise.all([
  startEverything(t),
  startMemory(t),
  startFilesystem(t, directory),
])

for (const kind of ['v1', 'legacy', 'modern', 'auto'] satisfies Kind[]) {
  await t.test(
    `the official SDK (${kind}) lists and calls, through the helper, the tools that it is bound to, and no others`,
    async (t) => {
      const way = await mcpThrough(t, [...HELD, 'vault.use'])
      await way.behind('everything', everything)
      await way.behind('memory', memory, { tool_capabilities: { delete_entities: 'memory.delete' } })
      await way.behind('files', files)
      await way.behind('vault', memory, { bound: false })
      const peer = await peerAt(t, way, kind)

      const listed = await peer.tools()
      for (const tool of ['everything.echo', 'memory.read_graph', 'files.read_text_file']) {
        t.ok(listed.includes(tool), tool)
      }
      t.same(new Set(listed.map((name) => name.split('.')[0])), new Set(['everything', 'memory', 'files']))
      t.ok(listed.includes('memory.delete_entities'), 'whether or not its capability is held')

      t.match(await peer.call('everything.echo', { message: 'grüezi' }), {
        content: [{ type: 'text', text: 'Echo: grüezi' }],
      })
      t.match(await peer.call('everything.get-sum', { a: 1, b: 2 }), { content: [{ text: /is 3\.$/ }] })
      const weather = await peer.call('everything.get-structured-content', { location: 'Chicago' })
      t.type(weather.structuredContent.temperature, 'number')
      const progress: Json[] = []
      const slow = { duration: 0.2, steps: 2 }
      const done = await peer.call('everything.trigger-long-running-operation', slow, (step) =>
        progress.push(step),
      )
      t.match(done, { content: [{ text: /completed/ }] })
      t.match(progress, [
        { progress: 1, total: 2 },
        { progress: 2, total: 2 },
      ])

      const entity = { name: `Ada ${kind}`, entityType: 'person', observations: ['counts'] }
      await peer.call('memory.create_entities', { entities: [entity] })
      const graph = await peer.call('memory.read_graph')
      t.match(
        graph.structuredContent.entities.find(({ name }: Json) => name === entity.name),
        entity,
      )

      const inside = await peer.call('files.read_text_file', { path: join(directory, 'note.txt') })
      t.match(inside, { content: [{ text: 'A note, in the directory that may be read.' }] })
      const outside = await peer.call('files.read_text_file', { path: '/etc/hostname' })
      t.match(outside, { isError: true, content: [{ text: /denied/ }] }, "the server's own no is a result")

      const missing = { code: -32005, data: { required_capability: 'memory.delete' } }
      const name = peer.errorName
      await t.rejects(peer.call('memory.delete_entities', { entityNames: [] }), { name, ...missing })
      await t.rejects(peer.call('vault.read_graph'), { name, code: -32000 }, 'not bound')
      await t.rejects(peer.call('vault.nothing'), { name, code: -32004 }, 'not there')
      await t.rejects(peer.call('everything.get-sum', { a: 'x' }), { name, code: -32602 }, 'not its schema')

      t.same(await way.decisions(PEERS[kind]), [
        'mcp_tools_list allowed',
        'everything.echo allowed',
        'everything.get-sum allowed',
        'everything.get-structured-content allowed',
        'everything.trigger-long-running-operation allowed',
        'memory.create_entities allowed',
        'memory.read_graph allowed',
        'files.read_text_file allowed',
        'files.read_text_file allowed',
        'memory.delete_entities denied',
        'vault.read_graph denied',
        'vault.nothing denied',
        'everything.get-sum invalid',
      ])
    },
  )

  await t.test(
    `a scoped door is, to the official SDK (${kind}), the server itself: its names, prompts and resources`,
    async (t) => {
      const way = await mcpThrough(t, [...HELD, 'mcp.prompts.get', 'mcp.resources.read'])
      await way.behind('everything', everything)
      await way.behind('memory', memory)
      await way.behind('vault', memory, { bound: false })
      const peer = await peerAt(t, way, kind, '/everything')

      const listed = await peer.tools()
      t.ok(listed.includes('echo') && !listed.includes('read_graph'), 'its own tools alone')
      t.match(await peer.call('echo', { message: 'hi' }), { content: [{ text: 'Echo: hi' }] })
      t.ok((await peer.prompts()).includes('args-prompt'))
      const prompt = await peer.prompt('args-prompt', { city: 'Bern' })
      t.match(prompt, { messages: [{ role: 'user', content: { text: /Bern/ } }] })
      const department = {
        ref: { type: 'ref/prompt', name: 'completable-prompt' },
        argument: { name: 'department', value: 'E' },
      }
      t.match(await peer.complete(department), { completion: { values: ['Engineering'] } })

      const [first = ''] = await peer.resources()
      t.match(await peer.read(first), { contents: [{ uri: first, text: /\w/ }] })
      t.ok((await peer.templates()).includes('demo://resource/dynamic/text/{resourceId}'))
      t.match(await peer.read('demo://resource/dynamic/text/1'), { contents: [{ text: /Resource 1/ }] })

      const other = await peerAt(t, way, kind, '/memory')
      t.ok((await other.tools()).includes('read_graph'))
      await t.rejects(other.call('echo', { message: 'hi' }), { name: peer.errorName, code: -32004 })
      await t.rejects(peerAt(t, way, kind, '/vault'), 'a door that it is not bound to does not open')
      const decisions = await way.decisions(PEERS[kind])
      t.ok(decisions.includes('mcp_prompts_get allowed') && decisions.includes('mcp_resources_read allowed'))
      const denied = decisions.filter((decision) => decision.endsWith('denied'))
      // Where it may choose the era, it knocks once for each.
      t.same(new Set(denied), new Set(['memory.echo denied', 'mcp_request denied']))
    },
  )
}

for (const kind of ['v1', 'legacy', 'modern', 'auto'] as const) {
  await t.test(
    `what server-everything asks the user and the model reaches the official SDK (${kind}), and its answer the server`,
    async (t) => {
      const way = await mcpThrough(t, HELD)
      await way.behind('everything', everything)
      const peer = await peerAt(t, way, kind)
      const sampled = await peer.call('everything.trigger-sampling-request', { prompt: 'Capital?' })
      t.ok(sampled.content[0].text.includes(SAMPLED), 'the model')
      const filled = await peer.call('everything.trigger-elicitation-request')
      t.match(filled, { content: [{}, { text: /- Name: Ada/ }] }, 'the user')
      t.same(await way.decisions(PEERS[kind]), [
        // The call, and the answer to what it asked.
        'everything.trigger-sampling-request allowed',
        'everything.trigger-sampling-request allowed',
        'everything.trigger-elicitation-request allowed',
        'everything.trigger-elicitation-request allowed',
      ])
    },
  )
}
