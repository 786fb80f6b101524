/** Returns how much `accept` wants a media type, lower case: 0 to 1 (RFC 9110 §12.5.1). */
export function mediaWeight(accept: string, media: string): number {
  const ranges = [media, `${media.slice(0, media.indexOf('/'))}/*`, '*/*']
  let [closest, weight] = [ranges.length, 0]
  for (const part of accept.toLowerCase().split(',')) {
    const [range = '', ...parameters] = part.split(';').map((each) => each.trim())
    const at = ranges.indexOf(range)
    if (at < 0 || at >= closest) continue
    const said = parameters.find((each) => each.startsWith('q='))
    closest = at
    weight = said === undefined ? 1 : Number(said.slice(2)) || 0
  }
  return weight
}
