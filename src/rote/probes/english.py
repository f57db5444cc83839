"""Lists of English words: those of closed classes, number words, and capitalised words that are nobody's name."""

from __future__ import annotations

VERSION = 1
"""Of these lists and of the rule for capitals; it changes with them."""


def _listed(words: str) -> frozenset[str]:
    return frozenset(words.split())


CLOSED = _listed(
    """
    a an the this that these those such same another other others each every either neither both all any some no none
    much many more most few fewer fewest less least little several enough half own various certain

    i me my mine myself we us our ours ourselves you your yours yourself yourselves thou thee thy thine thyself ye
    he him his himself she her hers herself it its itself they them their theirs themselves themself one oneself ones
    who whom whose which what whoever whomever whichever whatever whosoever whatsoever
    somebody someone something anybody anyone anything nobody noone nothing everybody everyone everything
    aught naught nought

    aboard about above across after against along alongside amid amidst among amongst around as at atop before behind
    below beneath beside besides between betwixt beyond but by concerning considering despite down during except
    excepting excluding following for from in inside into like mid minus near next of off on onto opposite out outside
    over past per plus regarding round save since than through throughout till to toward towards under underneath unlike
    until unto up upon versus via vs with within without

    and or nor yet so although albeit because if lest once though unless when whenever where whereas whereby wherefore
    wherein whereupon wherever whether while whilst why how however whence whither ere
    et etc eg ie

    be am is are was were been being art wast wert ain't aren't isn't wasn't weren't
    have has had having hath hast hadst haven't hasn't hadn't
    do does did doing done doth dost didst don't doesn't didn't
    can could may might must shall should will would ought need dare cannot shalt wilt canst couldst wouldst shouldst
    can't couldn't mayn't mightn't mustn't shan't shouldn't won't wouldn't oughtn't needn't daren't
    couldst mayst gonna gotta wanna

    not never ever n't too also very quite rather just only even still again already almost else then there here now
    thus hence therefore thereby therein thereof thereupon thither hither herein hereby hereof moreover furthermore
    nevertheless nonetheless otherwise instead indeed perhaps maybe somewhat somehow somewhere anywhere nowhere
    everywhere elsewhere anyhow anyway forth away back together apart aside ago

    ah aha alas aye bah eh er ha haha hello hem hey hi hm hmm ho hullo hum hurrah lo nay nope o oh okay ok ow pah pooh
    psst pshaw sh tut ugh uh um well whew whoa wow yea yeah yep yes
    """
)
"""Determiners, pronouns, prepositions, conjunctions, auxiliaries, particles, adverbs without a meaning of their own,
interjections."""

NUMBERS = _listed(
    """
    zero two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
    nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred hundreds thousand thousands million millions
    billion billions trillion trillions dozen dozens
    """
)
"""Number words; "one" is mostly a pronoun, and is taken for a number inside a compound alone."""

ABBREVIATED = _listed("mr mrs ms messrs mme mlle dr prof rev hon st jr sr capt col maj gen lt sgt gov")
"""Titles whose full stop ends no sentence."""

TITLES = ABBREVIATED | _listed(
    """
    miss sir madam madame ma'am lord lady dame king queen prince princess duke duchess count countess baron baroness
    earl emperor empress pope saint father mother brother sister uncle aunt cousin grandfather grandmother grandpa
    grandma papa mamma mama dad daddy mom mum mommy mummy captain colonel major general lieutenant sergeant corporal
    private admiral commander president senator governor mayor minister chancellor secretary professor doctor reverend
    judge justice detective inspector officer master mistress monsieur mademoiselle herr frau senor senora signor
    signora
    """
)
"""What stands before a name, or in its place, and is none."""

NOT_PEOPLE = TITLES | _listed(
    """
    january february march april may june july august september october november december jan feb mar apr jun jul aug
    sept sep oct nov dec monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thur thurs fri
    sat sun christmas easter thanksgiving halloween lent hanukkah ramadan
    spring summer autumn fall winter

    english french german italian spanish dutch russian chinese japanese american british scottish irish welsh indian
    greek roman latin egyptian turkish polish swedish danish norwegian portuguese mexican canadian australian african
    european asian arab arabic hebrew jewish christian catholic protestant muslim buddhist hindu englishman englishmen
    frenchman frenchmen irishman irishmen american americans germans romans greeks jews christians catholics muslims
    christianity islam judaism buddhism

    god lord heaven hell bible scripture

    england france germany italy spain russia china japan india america britain scotland ireland wales greece egypt
    turkey poland sweden denmark norway portugal mexico canada australia africa europe asia antarctica london paris rome
    berlin madrid moscow york boston chicago california texas florida oxford cambridge edinburgh dublin vienna venice
    florence jerusalem athens washington

    street road avenue lane square park bridge river lake mount mountain sea ocean bay island isle house hall castle
    palace church cathedral abbey college university school hospital hotel inn court city town county state states
    kingdom empire republic union company society museum library station office department ministry parliament congress
    senate north south east west northern southern eastern western chapter book part volume act scene page figure table
    internet new old great zealand
    """
)
"""Titles, days, months, feasts, seasons, peoples, religions, places, and nouns that names of places and things end
with."""
