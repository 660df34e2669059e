"""Abbreviations of each language, after which a full stop need not end a sentence.

A lowercase entry of `_TABLES` matches in any case. A capitalized entry matches as it is and in all
capitals: 'Mar.' and 'MAR.' are months, 'mar.' is not.
"""

import functools
from typing import NamedTuple


class Abbreviations(NamedTuple):
    """The abbreviations of a language.

    Attributes:
        titles: Never end a sentence before a capital letter or a number.
        numbered: Do not end a sentence before a number.
        others: End a sentence only before one of `first_words`, as initials and U.S. do.
        first_words: Words that often start a sentence and seldom continue an abbreviation.
        has_ordinals: Whether '3.' is an ordinal number before a capital letter, as in German.
    """

    titles: frozenset[str]
    numbered: frozenset[str]
    others: frozenset[str]
    first_words: frozenset[str]
    has_ordinals: bool


_MONTHS_EN = 'Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec'

# Language → titles, numbered, others, first words.
_TABLES: dict[str, tuple[str, str, str, str]] = {
    'en': (
        'mr mrs ms messrs mme mlle dr drs prof Rev Hon Gen Col Maj capt cpt Lt Sgt Cpl Adm Cmdr '
        'Gov Sen Rep Pres Mt Ft St Ste Fr Sr e.g eg i.e ie viz cf vs ca approx',
        f'no nos nr ext para vol vols p pp ch chap sec sect fig figs eq eqs art op tab pt par ver '
        f'v vv {_MONTHS_EN}',
        f'inc ltd Co corp Bros jr Esq etc Dept Univ Assn Est Ave Blvd Rd Ed eds trans repr al '
        f'Mon Tue Tues Wed Thu Thur Thurs Fri Sat Sun {_MONTHS_EN} Calif Fla Ga Ill Mass Mich Minn '
        'Pa Tex Wash Ariz Colo Conn',
        'The A An This That These Those There Here It Its He She We You They His Her Our Your '
        'Their My I In On At By For From To With Of As If When While Where What Who Why How Which '
        'But And Or So Yet Not No Yes Then Thus Also Although Though After Before Since Because '
        'However Once Only Even Some Many Most Such Both All Any Each Every Another Other Let '
        'Please Do Did Does Is Are Was Were Have Has Had Will Would Can Could Should May Might '
        'Must Now Later Today Early During Under Over Between Despite Until Unlike Within Without '
        'Just Well',
    ),
    'de': (
        'hr hrn fr dr prof dipl ing Mag St z.b d.h bzw vgl ggf evtl ca sog inkl zzgl bspw u.a v.a '
        'z.t i.d.r d.i s.o s.u geb Gen Ing Frhr',
        'nr s bd kap abb tab art abs aufl jg sp hg Jan Feb Apr Aug Sept Okt Nov Dez',
        'usw etc Str Jh Mio Mrd Tsd Co Inc Ltd Abt Ges Hrsg Verl Bez Kfm jun sen allg ehem max min',
        'Der Die Das Den Dem Des Ein Eine Einen Einem Einer Er Sie Es Wir Ihr Ich Man In Im Am An '
        'Auf Bei Beim Mit Nach Von Vom Vor Zu Zum Zur Für Aus Durch Gegen Ohne Um Unter Über Seit '
        'Bis Aber Und Oder Doch Denn Dann Da Daher Damit Dabei Danach Dort Dies Diese Dieser '
        'Dieses Diesen Auch Als Wenn Weil Während Wie Was Wer Wo Warum So Nicht Nur Noch Nun Jetzt '
        'Hier Heute Sein Seine Seiner Ihre Ihrer Jedoch Trotz Trotzdem Allerdings Später Alle Kein '
        'Keine Ist Sind War Wird Hat',
    ),
    'fr': (
        'M MM Mme Mmes Mlle Mlles Me Mgr Dr Pr Prof St Ste cf p.ex c.-à-d env Col Cdt Gal',
        'no n p pp vol chap art fig tab t § éd av janv févr avr juil sept oct nov déc',
        'etc al Inc Ltd Cie',
        'Le La Les L Un Une Des Ce Cet Cette Ces Il Elle Ils Elles On Nous Vous Je Tu Son Sa Ses '
        'Leur Leurs Mon Ma Mes Notre Votre Dans En Au Aux À De Du Par Pour Avec Sans Sur Sous '
        'Selon Après Avant Depuis Pendant Mais Et Ou Or Donc Car Ainsi Alors Puis Si Comme Quand '
        'Lorsque Que Qui Quoi Où Pourquoi Comment Non Oui Plus Tout Tous Toute Cependant Toutefois '
        'Enfin C D J N S Qu Y',
    ),
    'es': (
        'Sr Sra Sres Sras Srta Dr Dra Dres Prof Profa D Dña Dn Ud Uds Vd Vds Lic Ing Arq Gral Cap '
        'Cnel Sto Sta Ntro Ntra Mons p.ej ej vs cf aprox',
        'n núm nro p pág págs pp vol cap art fig tel s ss c ene feb febr abr jun jul ago sept oct '
        'nov dic',
        'etc Cía Av Avda Inc Ltd Hnos Depto Jr EE.UU',
        'El La Los Las Lo Un Una Unos Unas Este Esta Estos Estas Ese Esa Eso Esto Aquel Él Ella '
        'Ellos Ellas Yo Tú Nosotros Se Su Sus Mi Mis Nuestro En De Del A Al Por Para Con Sin Sobre '
        'Según Desde Hasta Entre Tras Durante Pero Y E O Aunque Si No Sí Como Cuando Donde Que Qué '
        'Quién Cómo Cuándo Porque También Además Así Entonces Luego Después Hoy Ahora Ya Todo '
        'Todos Hay Es Son Fue Era Ha Sin',
    ),
    'it': (
        'Sig Sigg Sig.ra Sig.na dott dott.ssa Prof prof.ssa Ing Avv Arch Geom Rag On Sen Gen Col '
        'Cap Mons Don S Ss cfr es p.es ad.es c.d ca',
        'n nn nr p pp pag pagg vol cap art artt fig tav sec tel gen feb apr giu lug sett ott dic',
        'ecc etc Inc Ltd S.p.A s.r.l',
        'Il Lo La I Gli Le L Un Uno Una Questo Questa Questi Queste Quello Quella Egli Ella Lui '
        'Lei Loro Essi Noi Voi Io Tu Si Suo Sua Suoi Sue In Nel Nella Nello Nei Nelle Di Del Della '
        'Dei Delle A Al Alla Ai Alle Da Dal Dalla Per Con Su Sul Sulla Tra Fra Senza Secondo Dopo '
        'Prima Durante Ma E Ed O Però Se Non Come Quando Dove Che Chi Cosa Perché Anche Inoltre '
        'Così Poi Quindi Oggi Ora Già Tutto Tutti È Sono Era Fu Ha',
    ),
    'pt': (
        'Sr Sra Srs Sras Dr Dra Drs Prof Profa Profª Eng Engª Exmo Exma D V Sto Sta p.ex ex cf vs '
        'aprox Gen Cel Cap',
        'n nº p pág págs pp vol cap art arts fig tel séc jan fev abr jun jul ago set out nov dez',
        'etc Cia Ltda Av Inc Jr',
        'O A Os As Um Uma Uns Umas Este Esta Estes Estas Esse Essa Isso Isto Aquele Ele Ela Eles '
        'Elas Eu Tu Nós Você Se Seu Sua Seus Suas Meu Em No Na Nos Nas De Do Da Dos Das Ao À Por '
        'Pelo Pela Para Com Sem Sobre Segundo Desde Até Entre Após Durante Mas E Ou Porém Não Sim '
        'Como Quando Onde Que Quem Porque Também Além Assim Então Depois Hoje Agora Já Todos É São '
        'Foi Era Há',
    ),
    'nl': (
        'dhr mevr mw mr dr drs ir ing prof ds st Sr fr bijv bv d.w.z o.a m.b.t t.a.v i.p.v z.g '
        'resp vgl zgn ca',
        'nr nrs p pag blz hfst art afb fig tel vol jg jan feb mrt apr jun jul aug sept okt nov dec',
        'enz etc Inc Ltd Co Jr',
        'De Het Een Deze Dit Dat Die Hij Zij Ze Wij We Ik Je Jij U Er Zijn Haar Hun Ons Onze In Op '
        'Aan Bij Met Naar Van Voor Door Over Onder Uit Tot Na Om Tegen Tussen Sinds Volgens Maar '
        'En Of Want Dus Toch Dan Toen Daar Daarom Hier Ook Als Wanneer Omdat Hoewel Wie Wat Waar '
        'Waarom Hoe Zo Niet Nog Nu Vandaag Al Alle Geen Is Was',
    ),
    'sv': (
        'hr fr dr prof t.ex bl.a d.v.s dvs s.k resp jfr kl ca',
        'nr s sid kap art fig st bd jan feb apr jun jul aug sept okt nov dec',
        'osv m.m etc Inc Ltd',
        'Den Det De En Ett Han Hon Vi Ni Jag Man Detta Denna Dessa I På Av Med För Till Från Om '
        'Vid Efter Under Över Men Och Eller Så Då Där Här När Som Vad Vem Hur Varför Inte Nu Idag '
        'Även Också Sedan Är Var',
    ),
    'da': (
        'hr fr dr prof f.eks bl.a dvs d.v.s s.k pga ca jf mht',
        'nr s kap art fig stk bd kl jan feb apr jun jul aug sept okt nov dec',
        'osv m.v mv m.m etc mio mia',
        'Den Det De En Et Han Hun Vi I Jeg Man Dette Denne Disse På Af Med For Til Fra Om Ved '
        'Efter Under Over Men Og Eller Så Da Der Her Når Som Hvad Hvem Hvordan Hvorfor Ikke Nu '
        'Også Siden Er Var',
    ),
    'no': (
        'hr fr dr prof f.eks bl.a dvs d.v.s s.k pga ca jf mht',
        'nr s kap art fig st bd kl jan feb apr jun jul aug sept okt nov des',
        'osv m.v m.m mm etc mill mrd',
        'Den Det De En Et Ei Han Hun Vi Jeg Man Dette Denne Disse I På Av Med For Til Fra Om Ved '
        'Etter Under Over Men Og Eller Så Da Der Her Når Som Hva Hvem Hvordan Hvorfor Ikke Nå Også '
        'Siden Er Var',
    ),
    'fi': (
        'hra rva prof tri esim mm ts ns ks vrt n',
        'nro s klo v',
        'jne ym yms tms etc eaa Oy',
        'Se Hän He Me Te Minä Sinä Tämä Nämä Ne Tuo Mutta Ja Tai Kun Jos Koska Mitä Kuka Missä '
        'Miksi Miten Ei On Oli Nyt Myös Siellä Sitten',
    ),
    'ru': (
        'г-н г-жа т.е т.к т.н т.о напр проф акад доц д-р св ул пл пр просп пер бул обл р-н дер '
        'пос см ср ген',
        'стр рис гл табл п пп ст вып т тт № илл с',
        'т.д т.п др руб коп тыс млн млрд г в вв гг н.э янв февр апр авг сент окт нояб дек пр корп '
        'Inc',
        'В Во На С Со К Ко По О Об От До Из За Для При У Через После Перед Он Она Оно Они Я Мы Вы '
        'Ты Это Этот Эта Эти Тот Та То Те Его Её Ее Их Наш Свой Но И А Или Да Не Нет Если Когда '
        'Где Как Что Кто Почему Потом Тогда Так Также Там Здесь Сегодня Теперь Уже Все Всё Был '
        'Была Были Есть Однако Поэтому Под Над',
    ),
    'uk': (
        'п пп п-н п-ні т.зв напр проф акад доц д-р св вул пл просп пров бул обл р-н див пор ген',
        'стор рис розд табл ст вип т тт № с гл',
        'т.д т.п ін грн коп тис млн млрд р рр ст н.е',
        'У В Во На З Із Зі До Від За Для При Про Після Перед Він Вона Воно Вони Я Ми Ви Ти Це Цей '
        'Ця Ці Той Та Те Ті Його Її Їх Але І Й А Або Так Не Ні Якщо Коли Де Як Що Хто Чому Потім '
        'Тоді Також Там Тут Сьогодні Тепер Вже Усі Все Був Була Були Є Однак Тому',
    ),
    'pl': (
        'p pp dr mgr inż prof hab ks św ul al pl np tzn tj tzw wg por ok gen płk kpt red',
        'nr s str t rozdz rys tab art ust pkt poz godz zob',
        'itd itp etc m.in r tys mln mld zł sp ww jr Inc Ltd',
        'W We Na Z Ze Do Od Za Dla Przy Po O Przed Przez On Ona Ono Oni Ja My Wy Ty To Ten Ta Te '
        'Ci Tego Jego Jej Ich Ale I A Lub Oraz Nie Tak Jeśli Gdy Kiedy Gdzie Jak Co Kto Dlaczego '
        'Potem Wtedy Także Również Tam Tu Dziś Teraz Już Wszystko Był Była Było Są Jest Jednak '
        'Dlatego Pod Nad',
    ),
    'cs': (
        'p pí sl dr mgr ing prof doc JUDr MUDr PhDr RNDr Bc sv ul tzv tj např resp gen plk cca',
        'č čp s str sv kap obr tab odst roč hod',
        'atd apod aj mj n.l r tis mil mld Kč stol jr',
        'V Ve Na Z Ze Do Od Za Pro Při Po O Před Přes S Se K Ke On Ona Ono Oni Já My Vy Ty To Ten '
        'Ta Ti Tato Tento Jeho Její Jejich Ale I A Nebo Ne Ano Pokud Když Kde Jak Co Kdo Proč '
        'Potom Tehdy Také Tam Tady Dnes Teď Už Vše Byl Byla Bylo Jsou Je Však Proto Pod Nad',
    ),
    'el': (
        'κ κα κος Δρ καθ π.χ δηλ βλ Αγ λεωφ οδ',
        'αρ σ σελ τ κεφ άρθ εικ τηλ',
        'κ.λπ κλπ κ.ά κτλ κ.τ.λ π.Χ μ.Χ Α.Ε Ιαν Φεβ Μαρ Απρ Ιουν Ιουλ Αυγ Σεπ Οκτ Νοε Δεκ',
        'Ο Η Το Οι Τα Τον Την Ένας Μία Μια Ένα Αυτός Αυτή Αυτό Αυτοί Σε Στο Στη Στην Στον Στις '
        'Από Με Για Χωρίς Κατά Μετά Πριν Αλλά Και Ή Όμως Αν Όταν Όπου Πώς Τι Ποιος Γιατί Δεν Όχι '
        'Ναι Επίσης Εκεί Εδώ Σήμερα Τώρα Όλοι Είναι Ήταν',
    ),
    'tr': (
        'Dr Prof Doç Yrd Av Sn Hz Alb Gen Org bkz örn Uzm Öğr',
        's sy c cilt böl no fig şek tab',
        'vs vb vd A.Ş Ltd Şti Mah Cad Sok Apt',
        'Bu Şu O Bir Ben Sen Biz Siz Onlar Ve Ama Fakat Ancak Çünkü Eğer Ne Kim Nerede Neden Nasıl '
        'Sonra Daha Çok Hiç Her Bütün Burada Orada Bugün Şimdi Artık',
    ),
    'ar': ('د أ أ.د ا.د', 'ص ج', 'الخ ق.م', ''),
}
_ALIASES = {'nb': 'no', 'nn': 'no', 'und': 'en'}
_ISO_639_2 = dict(
    eng='en', deu='de', ger='de', fra='fr', fre='fr', spa='es', ita='it', por='pt', nld='nl',
    dut='nl', swe='sv', dan='da', nor='no', nob='no', nno='no', fin='fi', rus='ru', ukr='uk',
    pol='pl', ces='cs', cze='cs', ell='el', gre='el', tur='tr', ara='ar',
)  # fmt: skip


@functools.cache
def find(language: str) -> Abbreviations:
    """Return the abbreviations of a language; empty lists if it has no table.

    Args:
        language: ISO 639 code of two or three letters, possibly with a region, as in 'pt-BR';
            'und', an unknown language, has the abbreviations of English.
    """
    code = language.lower().replace('_', '-').partition('-')[0]
    code = _ALIASES.get(code, _ISO_639_2.get(code, code))
    *abbreviated, first_words = (words.split() for words in _TABLES.get(code, ('', '', '', '')))
    titles, numbered, others = (
        frozenset(form for word in words for form in _forms(word)) for words in abbreviated
    )
    return Abbreviations(titles, numbered, others, frozenset(first_words), code == 'de')


def _forms(word: str) -> set[str]:
    return {word, word.upper()} | ({word[0].upper() + word[1:]} if word.islower() else set())
