import t from 'tap'
import type { AdminCall } from '../../../scripts/admin/call.ts'
import { verb as stop } from '../../../scripts/verbs/stop.ts'
import { verb as stops } from '../../../scripts/verbs/stops.ts'
import { press } from '../../support/dashboard/pressing.ts'
import { signedInAs } from '../../support/dashboard/signed-in.ts'
import { sharedGateway } from '../../support/gateway.ts'
import { signedInBySecret } from '../../support/oidc/jar.ts'
import { operatorNamed } from '../../support/operators.ts'

await t.test('sallyport stop begins a stop, and sallyport stops lists and ends it', async (t) => {
  const gateway = await sharedGateway(t)
  const call: AdminCall = async (method, path, body) => {
    const { status, json } = await gateway.admin(method, path, body)
    return { status, body: json }
  }
  const ran = async (verb: typeof stop, ...args: readonly string[]) => {
    const out: string[] = []
    await verb.perform(
      args,
      (_door, work) => work(call),
      (text) => out.push(text),
    )
    return out.join('')
  }
  t.match(await ran(stops), 'nothing is stopped')
  const begun = await ran(stop, '--kind', 'users', '--reason', 'a key has leaked')
  t.match(begun, 'stopped: calls of all users')
  const [id = ''] = /stp_[0-9a-f]{16}/.exec(begun) ?? []
  t.match(
    await ran(stops, 'list'),
    /stp_\w+ +calls of all users +\S+ +until it is ended +admin: a key has leaked/,
  )
  t.match(await ran(stops, 'end', id, '--reason', 'replaced'), `${id} has ended`)
  t.match(await ran(stops), 'nothing is stopped')
  for (const [args, sentence] of [
    [[], /say once what to stop/],
    [['--all', '--llm', '--reason', 'x'], /say once what to stop/],
    [['--all'], /say why/],
  ] as const)
    await t.rejects(ran(stop, ...args), sentence)
  await t.rejects(ran(stops, 'end', id), /say why/)
  await t.rejects(ran(stops, 'end', id, '--reason', 'again'), /no open stop/)
})

await t.test(
  'the dashboard asks twice before it stops calls, says so on every page, and ends a stop',
  async (t) => {
    const gateway = await sharedGateway(t)
    const jar = await signedInBySecret(gateway)
    const page = async (path = '/proxy/stops') => (await jar.ask('GET', path)).text
    const typed = { what: 'llm', reason: 'a <b>key</b> has leaked' }
    const asked = await press(jar, await page(), 'Stop', typed)
    t.match([asked.status, asked.text], [200, /calls to models<\/b>: from the next one on each is refused/])
    t.match(await page(), 'Nothing is stopped', 'one press stops nothing')
    t.equal((await press(jar, asked.text, 'Stop now')).status, 303)
    for (const path of ['/proxy/stops', '/proxy', '/proxy/agents'])
      t.match(await page(path), /role="alert"><a href="\/proxy\/stops">Stopped: calls to models<\/a>/, path)
    t.match(await page(), 'a &lt;b&gt;key&lt;/b&gt; has leaked')
    t.equal((await press(jar, await page(), 'End it', { reason: 'replaced' })).status, 303)
    t.match(await page(), 'Nothing is stopped')
    t.notMatch(await page('/proxy'), 'role="alert"')
    t.equal((await press(jar, await page(), 'Stop', { what: 'principal', reason: 'x' })).status, 422)

    const viewer = await signedInAs(gateway, await operatorNamed(gateway, 'viewer', ['admin.read']))
    const shown = (await viewer.ask('GET', '/proxy/stops')).text
    t.match(shown, /Stopping needs <code>admin\.stop<\/code>/)
  },
)
