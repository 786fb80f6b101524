import { mkdir, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { upstreamSecret } from '../../../../proxy/mcp/upstream/connections.ts'

await t.test(
  'docs/protocol.md#secret-references: a secret is named, not stored: env:NAME and file:/path',
  async (t) => {
    const root = t.testdir({ data: {}, token: 'from-a-file\n' })
    const read = upstreamSecret(
      { TOKEN: 'from-the-environment', EMPTY: '', MCP_PROXY_ADMIN_SECRET: 'ours' },
      join(root, 'data'),
    )
    await writeFile(join(root, 'private'), 'x', { mode: 0o600 })
    t.equal(await read('env:TOKEN'), 'from-the-environment')
    t.equal(await read(`file:${join(root, 'private')}`), 'x')
    for (const bad of [
      'env:EMPTY',
      'env:MISSING',
      'env:constructor',
      'TOKEN',
      'env:',
      'file:',
      `file:${root}/none`,
    ]) {
      await t.rejects(read(bad), bad)
    }
    await t.rejects(read('env:MCP_PROXY_ADMIN_SECRET'), 'our own settings are no secrets of others')
  },
)

await t.test(
  'threat 15: a reference cannot name the gateway’s own keys, nor what the kernel shows as files',
  async (t) => {
    const root = t.testdir({ data: {} })
    const data = join(root, 'data')
    await mkdir(join(data, 'ca'))
    await writeFile(join(data, 'ca', 'root.key.sealed'), 'key', { mode: 0o600 })
    await symlink(join(data, 'ca', 'root.key.sealed'), join(root, 'link'))
    await symlink(data, join(root, 'way'))
    const read = upstreamSecret({}, data)
    for (const path of [
      `${data}/ca/root.key.sealed`,
      `${root}/link`,
      `${root}/way/ca/root.key.sealed`,
      '/proc/self/environ',
    ]) {
      await t.rejects(read(`file:${path}`), { message: /is not a file for a secret/ }, path)
    }
  },
)
